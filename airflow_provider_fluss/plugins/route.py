"""Where the page is, below the base URL of Airflow's API server."""

from __future__ import annotations

from typing import Final

ROUTE: Final = "lake-tiering"
"""The page itself is at `/lake-tiering/`; within Airflow's navigation it is at `/plugin/lake-tiering`."""
