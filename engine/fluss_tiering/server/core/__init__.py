"""What the server knows and decides: rounds, leases, lake offsets, scans, and the store that keeps them."""
