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
# # Allocator
#
# **Question:** What does the allocator keep for each stream, and who holds it?
#
# At the end you know which bytes each stream holds when decode starts, which live block pins them, and whether `empty_cache` could return them.

# %% tags=["parameters"]
investigation: str = "capture-stream"  # folder in data/investigations
recordings: list = []  # recordings to judge, folders or embedded names; the first decides the device; empty: embedded
margin: float = 0.0  # equivalence margin as a fraction (0.01 is 1 %); 0: the investigation's own
drop_arms: list = []  # arms to leave out of every judgement
out: str = ""  # report folder for the result file and shared evidence; empty: nothing is written
arms: list = []  # arms to show; empty: the suspect, the fixes, the baseline and the planted ones
top: int = 60  # rows of the tables

# %%
from rcatools.report import figures, present, section_tables, session

case = session.open_case(investigation, recordings, margin=margin, drop_arms=drop_arms, out=out)

# %% [markdown]
# ## Bytes per stream
#
# The stream with the KV cache is left out of the drawing, because it holds nearly everything; the ledger below has it.

# %%
case.show(
    figures.allocator(
        case.measured,
        case.recording,
        arms or section_tables.overview_arms(case.document, case.measured, case.facts),
    )
)

# %% [markdown]
# ## The ledger
#
# Reserved = live + awaiting free + stranded + releasable, to the byte, for every arm and stream.

# %%
case.show(section_tables.ledger_table(case.measured, arms).head(top))

# %% [markdown]
# ## Who holds the blocks
#
# Live blocks of 1 MiB or more, and how their holder is known: by call stack, by size, by pool or by an intervention.

# %%
case.show(section_tables.pins_table(case.measured, arms or [case.suspect]).head(top))

# %% [markdown]
# ## What the chain says about memory
#
# The links that the snapshots answer.

# %%
case.show(present.links(case.document))

# %% [markdown]
# ## Answer

# %%
case.answer("03_allocator")
