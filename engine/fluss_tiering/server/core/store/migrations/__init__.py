"""The migrations of the server's database, which Alembic runs."""
