"""Paired comparison, equivalence, sequential looks, modes, multiplicity, detection limit."""
