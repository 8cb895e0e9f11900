"""The vime-decode workload: vocab-parallel log-probabilities, their hazards, and the decode product."""
