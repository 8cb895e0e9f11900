# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Profile the kernels
#
# **Question:** Did the kernels themselves become slower, or the gaps between them?
#
# At the end you know where the time went: inside bandwidth-bound kernels, inside compute-bound kernels, or between kernels.

# %% tags=["parameters"]
investigation: str = "capture-stream"  # folder in data/investigations
recordings: list = []  # recordings to judge, folders or embedded names; the first decides the device; empty: embedded
margin: float = 0.0  # equivalence margin as a fraction (0.01 is 1 %); 0: the investigation's own
drop_arms: list = []  # arms to leave out of every judgement
out: str = ""  # report folder for the result file and shared evidence; empty: nothing is written
top: int = 20  # rows of the kernel table

# %%
from rcatools.report import figures, present, session

case = session.open_case(investigation, recordings, margin=margin, drop_arms=drop_arms, out=out)

# %% [markdown]
# ## Kernels alone
#
# Each kernel timed by itself in every arm. Slower memory shows on the bandwidth-bound ones in proportion to their duration; a fixed cost between kernels is the same for all.

# %%
case.show(figures.kernels(case.document, case.margin))
case.show(figures.kernel_differences(case.document))
case.show(present.kernels(case.document).head(top))

# %% [markdown]
# ## One step in the trace
#
# Time inside kernels and idle time between them. A table of kernel durations alone cannot see a cost that is paid between kernels.

# %%
case.show(figures.steps(case.measured, case.recording))
case.show(figures.gaps(case.measured, case.recording))

# %% [markdown]
# ## Does the trace explain the measured difference?
#
# The traced difference split into kernels and gaps, beside the difference that was timed without a profiler.

# %%
case.show(figures.where_time_went(case.document))
case.show(present.reconcile(case.document))

# %% [markdown]
# ## What changed inside the step, arm by arm
#
# Read from measurement alone: the names of the arms play no part.

# %%
case.show(present.mechanisms(case.document))

# %% [markdown]
# ## Answer

# %%
case.answer("02_profile_kernels")
