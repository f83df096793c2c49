"""KV snapshot leases: which KV snapshots are pinned, for whom, and until when."""
