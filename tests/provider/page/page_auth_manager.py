"""An auth manager that lets one user into Airflow, but not into its plugins and connections."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

OUTSIDER = "olaf"


class AuthManagerWithOutsider(SimpleAuthManager):
    """The simple auth manager, whose least role may see all views, with a user who may not."""

    def is_authorized_view(self, *, access_view: Any, user: Any) -> bool:
        return user.username != OUTSIDER and super().is_authorized_view(access_view=access_view, user=user)

    def is_authorized_connection(self, *, method: Any, user: Any, details: Any = None) -> bool:
        return user.username != OUTSIDER and super().is_authorized_connection(method=method, user=user, details=details)
