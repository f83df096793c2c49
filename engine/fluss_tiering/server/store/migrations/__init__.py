"""The migrations of the server's database, run by Alembic."""
