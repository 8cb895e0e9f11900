"""Arms, design, isolated workers and the runner that watches them."""
