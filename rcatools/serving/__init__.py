"""vLLM: arm plugin, fresh-server runs, readers of results and logs."""
