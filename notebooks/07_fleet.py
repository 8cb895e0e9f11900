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
# # Fleet overview
#
# **Question:** What do all recordings say together, and which machine, day or commit is odd?
#
# At the end you know the verdict of every row of your sweeps, the noise floor of every machine, which machine or day does not behave like its peers, and at which commit a metric stepped.

# %% tags=["parameters"]
folder: str = ""  # folder with recordings, reports or sweeps; empty: the embedded recordings
margin: float = 0.01  # deviation of a machine, day or commit that does not matter (0.01 is 1 %)
commits: list = []  # commits, oldest first, for the trend; empty: no trend
arm: str = ""  # the trend follows this arm's ratio to its baseline; empty: the baseline's own time
by: list = []  # "machine" and "day" whose levels are taken out of the trend
out: str = ""  # folder for the page and the result file; empty: nothing is written

# %%
from rcatools.batch.fleet_session import open_fleet

fleet = open_fleet(folder, margin=margin, out=out)

# %% [markdown]
# ## What was found
#
# Files that cannot be read are counted and listed, not left out.

# %%
fleet.show_summary()

# %% [markdown]
# ## Verdicts
#
# Each arm over all recordings: where the range is wide, machines, days or commits disagree.

# %%
fleet.show_verdicts()

# %% [markdown]
# ## Rows of sweeps
#
# One line for each row of each table, with its state and verdict.

# %%
fleet.show_rows()

# %% [markdown]
# ## Noise floor per machine
#
# The floor is what two arms of one build differ by. A machine with a high one cannot see small changes.

# %%
fleet.show_machines()

# %% [markdown]
# ## Trend over commits
#
# The first bad commit is named only where its probability reaches 99 % and the runs after it are slower than those before.

# %%
fleet.show_trend(commits, arm=arm, by=by)

# %% [markdown]
# ## Answer

# %%
fleet.answer("07_fleet")
