"""Several servers on one PostgreSQL: one is active, the others wait, answer reads, forward calls and take over."""
