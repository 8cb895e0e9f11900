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
# # Compare the fixes
#
# **Question:** Which fix variant removes the slowdown, and what does it cost?
#
# At the end you can say for each variant what it does to time, memory and output, against the suspect and against the baseline.

# %% tags=["parameters"]
investigation: str = "capture-stream"  # folder in data/investigations
recordings: list = []  # recordings to judge, folders or embedded names; the first decides the device; empty: embedded
margin: float = 0.0  # equivalence margin as a fraction (0.01 is 1 %); 0: the investigation's own
drop_arms: list = []  # arms to leave out of every judgement
out: str = ""  # report folder for the result file and shared evidence; empty: nothing is written

# %%
from rcatools.report import figures, fix_table, serving_view, session

case = session.open_case(investigation, recordings, margin=margin, drop_arms=drop_arms, out=out)

# %% [markdown]
# ## Time
#
# Each variant against the baseline. Inside the band it is as good as no profiling at all.

# %%
case.show(figures.fixes(case.document, case.margin))

# %% [markdown]
# ## Time, memory and output together
#
# A variant that is fast but computes something else is no fix.

# %%
case.show(fix_table.fixes(case.document))

# %% [markdown]
# ## vLLM: speed by load
#
# Only where the recording was made with vLLM: tokens per second and latency by load and arm, with the KV cache beside them. An arm with another number of KV blocks is confounded: its time cannot be laid to the arm alone.

# %%
for table in serving_view.tables(case.measured, case.facts):
    case.show(table)

# %% [markdown]
# ## How much of it does it take?
#
# Arms that differ in one number only, such as the count of further streams or the size of a block.

# %%
for curve in figures.families(case.document, case.margin):
    case.show(curve)
    case.show(curve.table())

# %% [markdown]
# ## Answer

# %%
case.answer("04_compare_fixes")
