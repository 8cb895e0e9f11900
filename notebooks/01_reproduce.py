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
# # Reproduce
#
# **Question:** Is there a regression here, and how sure is that?
#
# At the end you have the effect with its interval, the smallest effect that could have been seen, and every single block behind it.

# %% tags=["parameters"]
investigation: str = "capture-stream"  # folder in data/investigations
recordings: list = []  # recordings to judge, folders or embedded names; the first decides the device; empty: embedded
margin: float = 0.0  # equivalence margin as a fraction (0.01 is 1 %); 0: the investigation's own
drop_arms: list = []  # arms to leave out of every judgement
table: str = ""  # a table of repeated measurements from elsewhere, judged beside the recordings; empty: none
table_baseline: str = ""  # the arm (or column) of that table to compare with
out: str = ""  # report folder for the result file and shared evidence; empty: nothing is written

# %%
from rcatools.report import compare_items, figures, present, provenance, serving_view, session

case = session.open_case(investigation, recordings, margin=margin, drop_arms=drop_arms, out=out)

# %% [markdown]
# ## Every block
#
# Each tick is one block: the arm and the baseline, run minutes apart in processes of their own.

# %%
case.show(figures.blocks(case.document, case.measured, case.facts))

# %% [markdown]
# ## Every arm against the baseline
#
# The mean of the blocks with its confidence interval; the band is the margin declared before the first run.

# %%
case.show(figures.arms(case.document, case.margin))
case.show(present.arms(case.document))

# %% [markdown]
# ## A table from elsewhere
#
# Only where one was given: what `rcatools compare` says about it.

# %%
for item in compare_items.judge_table(table, table_baseline, margin):
    case.show(item)

# %% [markdown]
# ## vLLM: speed by load
#
# Only where the recording was made with vLLM: tokens per second and latency by load and arm, with the KV cache beside them. An arm with another number of KV blocks is confounded: its time cannot be laid to the arm alone.

# %%
for table in serving_view.tables(case.measured, case.facts):
    case.show(table)

# %% [markdown]
# ## What was published elsewhere
#
# Other machines, other software: shown beside what was measured here, never mixed with it.

# %%
case.show(provenance.published(case.document))

# %% [markdown]
# ## Answer

# %%
case.answer("01_reproduce")
