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
# # Preflight
#
# **Question:** Which machine and code do these measurements come from, how quiet was it, and what could be seen?
#
# At the end you know the noise floor of the machine, whether planted regressions were found, and which runs failed. Nothing that follows means more than this allows.

# %% tags=["parameters"]
investigation: str = "capture-stream"  # folder in data/investigations
recordings: list = []  # recordings to judge, folders or embedded names; the first decides the device; empty: embedded
margin: float = 0.0  # equivalence margin as a fraction (0.01 is 1 %); 0: the investigation's own
drop_arms: list = []  # arms to leave out of every judgement
out: str = ""  # report folder for the result file and shared evidence; empty: nothing is written

# %%
from rcatools.report import figures, present, provenance, section_tables, session

case = session.open_case(investigation, recordings, margin=margin, drop_arms=drop_arms, out=out)

# %% [markdown]
# ## The machine and the code
#
# Everything that could make another run differ from this one.

# %%
case.show(provenance.environment(case.document))
case.show(provenance.recordings(case.document))

# %% [markdown]
# ## The noise floor
#
# The same build measured twice in each block, in separate processes. What differs here is noise.

# %%
case.show(figures.baseline_series(case.measured, case.facts))

# %% [markdown]
# ## The ceilings
#
# How near each kernel comes to what this device can do at all, measured on the same device.

# %%
case.show(figures.ceiling_share(case.document))

# %% [markdown]
# ## Planted regressions
#
# A set-up that cannot see a known slowdown may not say that there is none.

# %%
case.show(present.plants(case.document))

# %% [markdown]
# ## How it was measured
#
# Whether forking the runs changed them, whether a difference stays one in clock cycles, whether warm-up ended by its trend, and what was seen of clocks, neighbours and caches. What was not tested says so.

# %%
case.show(provenance.checks(case.document))

# %% [markdown]
# ## Runs that failed
#
# They are listed and counted, never replaced in silence.

# %%
case.show(section_tables.failed_runs_table(case.measured))

# %% [markdown]
# ## Answer

# %%
case.answer("00_preflight")
