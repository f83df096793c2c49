"""The layout of 0.1.0. New databases get the tables of `schema` at once, and this number with them."""

revision = "0009"
down_revision = None


def upgrade() -> None:
    """Do nothing: no database is older."""
