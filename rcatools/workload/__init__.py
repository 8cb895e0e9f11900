"""The decode step and its kernels, with their bytes and FLOPs."""
