# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
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
top: int = 20  # rows of the kernel tables
traces: list = []  # one or two trace files of any known format to look at; empty: the recording's own
ceilings: str = ""  # roofline.csv or JSON with the device's ceilings; empty: the recording's own, or none

# %%
from rcatools.report import figures, present, session, trace_items

case = session.open_case(investigation, recordings, margin=margin, drop_arms=drop_arms, out=out)
profiles = trace_items.open_profiles(investigation, recordings, traces, ceilings)

# %% [markdown]
# ## Kernels alone
#
# Each kernel timed by itself in every arm. Slower memory shows on the bandwidth-bound ones in proportion to their duration; a fixed cost between kernels is the same for all.

# %%
case.show(figures.kernels(case.document, case.margin))
case.show(figures.kernel_differences(case.document))
case.show(present.kernels(case.document).head(top))
case.show(figures.kernel_runs(case.measured, case.facts, case.suspect))

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
# The traced difference split into kernels, launches that only one side has, and gaps, beside the difference that was timed without a profiler.

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
# ## The traces themselves
#
# The recording's baseline and suspect, or the files given as `traces`, the first one as the baseline. What a trace's health forbids is not concluded below.

# %%
for item in trace_items.about(profiles):
    case.show(item)

# %% [markdown]
# ## Which kernels take the time

# %%
for item in trace_items.kernels(profiles, top):
    case.show(item)

# %% [markdown]
# ## How near to the ceilings
#
# Only kernels whose bytes and operations are known, from recorded shapes or from the workload's own declaration. Nothing is drawn above a ceiling without being called a wrong count.

# %%
for item in trace_items.roofline(profiles):
    case.show(item)

# %% [markdown]
# ## How each kernel's launches spread, run by run

# %%
for item in trace_items.distributions(profiles):
    case.show(item)

# %% [markdown]
# ## What changed from one trace to the other
#
# The terms add up to the difference of the spans. A line through the changes that starts above zero is a fixed cost per kernel; one that rises is a cost in proportion to the duration; a change in the gaps is in neither.

# %%
for item in trace_items.difference(profiles, top):
    case.show(item)

# %% [markdown]
# ## Answer

# %%
case.answer("02_profile_kernels", trace_items.answer(profiles, case))
