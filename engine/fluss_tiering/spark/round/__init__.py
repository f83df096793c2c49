"""One round of one table: plan, read, write and commit, under a lease that protects what it reads."""
