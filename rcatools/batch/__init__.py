"""Many reports or recordings: papermill runs, sweeps, index."""
