"""Fixtures of the client's tests."""

from engine_fixtures import client, clock, server  # noqa: F401
