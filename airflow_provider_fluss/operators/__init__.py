"""The operators that acquire and release KV snapshot leases and submit the tiering application."""
