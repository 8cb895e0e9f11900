"""What runs the work: backend, fingerprint of machine and code, clocks, ceilings."""
