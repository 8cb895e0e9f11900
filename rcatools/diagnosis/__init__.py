"""Hypotheses with predictions, published claims, evidence and verdicts."""
