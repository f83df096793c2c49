"""Several servers on one PostgreSQL: one is active; the others stand by, answer reads, forward calls and take over."""
