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
# # Findings
#
# **Question:** Which cause stands, which falls, and what is still open?
#
# Change `margin` or name arms in `drop_arms` above and run again: the verdicts below follow. The same records make `findings.md` and `report.html`.

# %% tags=["parameters"]
investigation: str = "capture-stream"  # folder in data/investigations
recordings: list = []  # recordings to judge, folders or embedded names; the first decides the device; empty: embedded
margin: float = 0.0  # equivalence margin as a fraction (0.01 is 1 %); 0: the investigation's own
drop_arms: list = []  # arms to leave out of every judgement
out: str = ""  # report folder for the result file and shared evidence; empty: nothing is written

# %%
from rcatools.report import figures, present, provenance, session

case = session.open_case(investigation, recordings, margin=margin, drop_arms=drop_arms, out=out)

# %% [markdown]
# ## The effect
#
# The suspect, the repeat of the baseline and the fix variants; the band is the margin, so another margin moves it.

# %%
case.show(case.document["answer"])
case.show(figures.fixes(case.document, case.margin))

# %% [markdown]
# ## The causal chain
#
# Every link is tested by itself. The first that is not shown ends the chain as a cause, even where the last number falls.

# %%
case.show(present.links(case.document))
case.show(case.document["chain"]["text"])

# %% [markdown]
# ## The rival causes
#
# Supported only by a prediction that its rivals do not share; contradicted only by a necessary one that fails within the detection limit.

# %%
case.show(present.hypotheses(case.document))
for group in present.groups(case.document):
    case.show(present.matrix(case.document, group, tested_only=True))

# %% [markdown]
# ## What each cause predicted, and what was seen

# %%
for cause in case.document["hypotheses"]:
    case.show(present.predictions(cause, short=True))
case.show(present.observations(case.document))

# %% [markdown]
# ## Published claims
#
# What this recording says to numbers and causes published elsewhere, and where the environments differ.

# %%
case.show(provenance.claims(case.document))
case.show(provenance.claim_differences(case.document))

# %% [markdown]
# ## What was not tested
#
# Each question with the run that would answer it.

# %%
case.show(provenance.open_questions(case.document))

# %% [markdown]
# ## Answer

# %%
case.answer("05_findings")
