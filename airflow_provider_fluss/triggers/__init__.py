"""Triggers: what deferred sensors wait with."""
