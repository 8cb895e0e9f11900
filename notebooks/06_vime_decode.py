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
# # vime-decode
#
# **Question:** What explains the gap between a clean checkout and the published rollout throughput, what does each part take away, and what does safety cost?
#
# At the end you know how many collectives a call issues, what each form takes over ranks, which hazards of the review
# are real and what each costs to close, what the product configurations do and why, and what the public record leaves open.

# %% tags=["parameters"]
investigation: str = "vime-decode"  # folder in data/investigations
recordings: list = []  # recordings to judge, folders or embedded names; the first decides the device; empty: embedded
product: str = "vime-matmul-h200"  # recording of the decode products; empty: none
graphs: str = "vime-graphs-h200"  # recording of the forms in graphs on a GPU; empty: none
live_hazards: bool = True  # meet the hazards on this CPU now (needs torch, 10 s); false: the kept table
margin: float = 0.0  # equivalence margin as a fraction (0.01 is 1 %); 0: the investigation's own
drop_arms: list = []  # arms to leave out of every judgement
out: str = ""  # report folder for the result file and shared evidence; empty: nothing is written

# %%
from rcatools.report import figures, provenance, session, vime, vime_findings, vime_products

case = session.open_case(investigation, recordings, margin=margin, drop_arms=drop_arms, out=out)
extras = vime_findings.load_extras(investigation, product, graphs, live=live_hazards)
worlds = vime.world_sizes(case.measured, case.recording)
judged = vime.judged_world(case.measured, case.recording)

# %% [markdown]
# ## Collectives per call
#
# Counted twice: where they are issued, and by the process group itself.

# %%
for world in worlds:
    case.show(vime.collectives(case.measured, case.recording, world))

# %% [markdown]
# ## What each form takes
#
# The exchange alone, without the tile statistics before it, against the form of the clean checkout.

# %%
case.show(figures.arms(case.document, case.margin))
case.show(vime.latency_by_ranks(case.measured, case.recording, case.facts.baseline, worlds, judged))
case.show(vime.latency(case.measured, case.recording, worlds, judged))

# %% [markdown]
# ## In a graph on a GPU
#
# Which forms can be captured, and what an exchange takes inside a replay and launched eagerly.

# %%
case.show(vime.captures(extras.graphs))
case.show(vime.replays(extras.graphs))

# %% [markdown]
# ## Hazards on purpose
#
# Each hazard is met by the published form and by the safe ones. A hang is ended by its watchdog.

# %%
case.show(vime.hazards(extras.all_hazards()))

# %% [markdown]
# ## Decode products
#
# Tile configurations of the published rule against the default one, torch and the bandwidth floor.

# %%
if extras.product is not None:
    for rows in (8, 64):
        case.show(vime_products.product_forest(extras.product, rows))
    case.show(vime_products.product_cells(extras.product))
    case.show(vime_products.token_bars(extras.product))

# %% [markdown]
# ### Which property moves the time
#
# More programs was the published explanation. Counted here: what each configuration launches and puts to work. Timed
# here: each of its changes alone on the default tile, and a grid that varies one property at a time.

# %%
if extras.product is not None:
    case.show(vime_products.launch_table(extras.product))
    case.show(vime_products.work_table(extras.product))
    for rows in (16, 64):
        case.show(vime_products.single_changes(extras.product, rows))
    for rows in (16, 64):
        case.show(vime_products.factors(extras.product, rows))
    case.show(vime_products.equality(extras.product))

# %% [markdown]
# ### Compiled for AMD cards

# %%
case.show(vime_products.assembly(extras.assembly))

# %% [markdown]
# ## Where the numbers come from
#
# Published numbers with their sources, those that are missing named as such, and the code state of every recording.

# %%
case.show(provenance.published(case.document))
case.show(provenance.recordings(case.document))

# %% [markdown]
# ## Answer

# %%
case.answer("06_vime_decode", vime_findings.sentences(case.document, extras))
