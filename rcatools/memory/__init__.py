"""torch memory snapshots: reader, ledger, owners, allocator simulator."""
