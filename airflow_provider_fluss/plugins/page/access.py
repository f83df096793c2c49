"""Who may see the page and who may act on it. Airflow's auth manager decides; the page has no users of its own.

A user who may see Airflow's plugins may read the page: Airflow shows the entry in its navigation to the same users. A
user who may edit the connection of a tiering server may act on its tables and leases. What the routes do not accept is
answered with 422, before anything is asked, done or recorded.
"""

from __future__ import annotations

import hmac
from typing import Annotated, Final

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, ConnectionDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from airflow.models.connection import Connection
from fastapi import Depends, Form, HTTPException, Query, Request, status
from itsdangerous import BadSignature, URLSafeTimedSerializer
from pydantic import AfterValidator

_LONGEST: Final = 2000
_LARGEST: Final = 2**63 - 1
"""The largest number that the protocol of the tiering server carries."""


def _without_controls(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected a text without control characters")
    return text


Text = Annotated[str, Query(max_length=_LONGEST), AfterValidator(_without_controls)]
# FastAPI of Airflow 3.1 takes an empty field for a text; later ones take it for none.
Field = Annotated[str, Form(min_length=1, max_length=_LONGEST), AfterValidator(_without_controls)]
Token = Annotated[str, Form(max_length=_LONGEST), AfterValidator(_without_controls)]
Attempt = Annotated[int, Form(ge=0, le=_LARGEST)]
Number = Annotated[int, Query(ge=-_LARGEST, le=_LARGEST)]


_TOKEN_SECONDS: Final = 12 * 60 * 60
_SALT: Final = "fluss-lake-tiering"


def reader(user: GetUserDep) -> BaseUser:
    """Return the user who is logged in and may read the page.

    Raises:
        HTTPException: 401 without a valid login; 403 if the user may not see Airflow's plugins.
    """
    if not get_auth_manager().is_authorized_view(access_view=AccessView.PLUGINS, user=user):
        raise HTTPException(
            status.HTTP_403_FORBIDDEN,
            "You may not see this page: it needs the permission to see Airflow's plugins. Ask who administers Airflow.",
        )
    return user


Reader = Annotated[BaseUser, Depends(reader)]


def may_edit(user: BaseUser, conn_id: str) -> bool:
    """Return whether the user may act on the tables and leases of this connection."""
    # Connections have had teams since Airflow 3.2.
    team = Connection.get_team_name(conn_id) if hasattr(Connection, "get_team_name") else None
    details = ConnectionDetails(conn_id=conn_id, **({} if team is None else {"team_name": team}))
    return get_auth_manager().is_authorized_connection(method="PUT", details=details, user=user)


def may_read_connection_of_team(user: BaseUser, conn_id: str, team_name: str) -> bool:
    """Return whether the user may read this connection, which belongs to a team."""
    details = ConnectionDetails(conn_id=conn_id, team_name=team_name)
    return get_auth_manager().is_authorized_connection(method="GET", details=details, user=user)


def editor(request: Request, user: Reader, conn: Field, token: Token = "") -> BaseUser:
    """Return the user of an action, once it is sure that the user may act and that a form of this page sent it.

    Args:
        request: The request.
        user: The user who is logged in.
        conn: The id of the connection, from the form.
        token: What `form_token` made for this user, from the form. A page of another origin cannot know it.

    Raises:
        HTTPException: 401 and 403 as in `reader`; 403 if the user may not edit the connection, or if the token is
            missing, older than twelve hours or somebody else's.
    """
    if not may_edit(user, conn):
        raise HTTPException(
            status.HTTP_403_FORBIDDEN,
            f"You may not do this: it needs the permission to edit the connection {conn}. Ask who administers Airflow.",
        )
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin" or not _is_token_of(user, token):
        raise HTTPException(
            status.HTTP_403_FORBIDDEN,
            "This form was not accepted: it is older than twelve hours, or was not sent by this page. "
            "Load the page again, and repeat what you did.",
        )
    return user


Editor = Annotated[BaseUser, Depends(editor)]


def form_token(user: BaseUser) -> str:
    """Return a token for the forms of a page that this user sees."""
    return str(_serializer().dumps(user.get_id()))


def _is_token_of(user: BaseUser, token: str) -> bool:
    try:
        owner = _serializer().loads(token, max_age=_TOKEN_SECONDS)
    except BadSignature:
        return False
    return hmac.compare_digest(str(owner).encode(), user.get_id().encode())


def _serializer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(conf.get_mandatory_value("api", "secret_key"), salt=_SALT)
