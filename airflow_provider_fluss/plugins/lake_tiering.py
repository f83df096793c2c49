"""The plugin that adds the page "Lake tiering" to Airflow's navigation.

Airflow finds the plugin by the entry point `airflow.plugins`. The section `plugins` of the provider's metadata would
not do: Airflow reads it only if `[core] lazy_discover_providers` is off.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_fluss.plugins.route import ROUTE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class LazyApp:
    """An ASGI application that is made at its first request.

    Every component of Airflow loads plugins, workers too. Only the API server needs FastAPI and its database.
    """

    def __init__(self) -> None:
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._app is None:
            # The import takes a moment, in which the API server has other requests to answer.
            self._app = await asyncio.to_thread(_make_app)
        await self._app(scope, receive, send)


def _make_app() -> ASGIApp:
    from airflow_provider_fluss.plugins.page.app import make_app  # noqa: PLC0415 - see LazyApp

    return make_app()


class LakeTieringPlugin(AirflowPlugin):
    """Adds the page, and its entry in the navigation."""

    name = "fluss_lake_tiering"
    fastapi_apps = [  # noqa: RUF012 - declared so by Airflow
        {"name": "Lake tiering", "app": LazyApp(), "url_prefix": f"/{ROUTE}"}
    ]
    # The addresses are relative: the user interface resolves them against `[api] base_url`, which may have a path.
    external_views = [  # noqa: RUF012
        {
            "name": "Lake tiering",
            "href": f"{ROUTE}/",
            "destination": "nav",
            "url_route": ROUTE,
            "icon": f"{ROUTE}/static/icon-light.svg",
            "icon_dark_mode": f"{ROUTE}/static/icon-dark.svg",
            "nav_top_level": True,
        }
    ]
