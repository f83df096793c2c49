"""Which of several servers on one PostgreSQL is the active one, and what keeps the others from writing."""
