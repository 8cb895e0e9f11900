"""Profiler traces as one kernel table: health, coverage, alignment, exact decomposition."""
