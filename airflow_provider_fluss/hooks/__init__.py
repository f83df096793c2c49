"""Hooks: how Airflow reaches the tiering server."""
