"""The hook by which Airflow reaches the tiering server."""
