"""Statistics on positive times: verdicts with reasons. Needs numpy, scipy, statsmodels, pandas."""
