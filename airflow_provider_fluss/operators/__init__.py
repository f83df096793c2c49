"""The operators that acquire and release KV snapshot leases, and those that submit applications to Spark."""
