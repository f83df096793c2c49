"""One round of one table: plan, read, write, commit, and the lease that protects it."""
