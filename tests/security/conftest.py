"""The fixtures of the tests about security."""

from engine_fixtures import postgres, postgres_url  # noqa: F401
