"""Makes HTML from the templates, with headers that allow a browser nothing but what the page needs.

The style sheet, the scripts and the icons come with the package. What an action tells on the next page travels in the
address, signed: no other page can put words there.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from airflow.api_fastapi.app import get_auth_manager
from airflow.configuration import conf
from fastapi import Response
from fastapi.responses import HTMLResponse
from itsdangerous import BadData, URLSafeTimedSerializer
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from airflow_provider_fluss.plugins.page import text
from airflow_provider_fluss.plugins.page.chart import outcome
from airflow_provider_fluss.plugins.page.selection import is_late, shown_state, since
from airflow_provider_fluss.plugins.route import dag_run_href, task_log_href
from fluss_tiering.model.tiering import is_web_address

_POLICY: Final = "Content-Security-Policy"
_HEADERS: Final = {
    _POLICY: (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def page(template: str, status: int = HTTPStatus.OK, **values: Any) -> Response:
    """Return the answer with the HTML of a template."""
    return HTMLResponse(_render(template, values), status_code=status, headers=_HEADERS)


def refusal(status: int, reason: str, url: str) -> Response:
    """Return the answer to a request that was refused. Who is not logged in is shown the way to the login."""
    login = get_auth_manager().get_url_login(next_url=url) if status == HTTPStatus.UNAUTHORIZED else None
    nonce = secrets.token_urlsafe()
    values = {"title": HTTPStatus(status).phrase, "reason": reason, "login": login, "nonce": nonce}
    headers = {**_HEADERS, _POLICY: f"default-src 'none'; style-src 'nonce-{nonce}'; frame-ancestors 'self'"}
    return HTMLResponse(_render("refusal.html", values), status_code=status, headers=headers)


def _render(template: str, values: dict[str, Any]) -> str:
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": text.breakable,
        "count": text.count,
        "dag_run_href": dag_run_href,
        "distance": text.distance,
        "duration": text.duration,
        "harmless": text.harmless,
        "is_late": is_late,
        "iso": text.iso,
        "lag": text.lag,
        "one_line": text.one_line,
        "outcome": outcome,
        "shown_state": shown_state,
        "since": since,
        "size": text.size,
        "task_log_href": task_log_href,
        "took": text.took,
        "utc": text.utc,
    }
    environment.globals["static"] = static_href
    environment.tests["web_address"] = is_web_address
    return environment


_FOLDER: Final = Path(__file__).with_name("static")
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    return {path.name: (path.read_bytes(), _TYPES[path.suffix]) for path in _FOLDER.iterdir() if path.suffix in _TYPES}


@cache
def static_href(name: str) -> str:
    """Return the relative address of a file. It changes with the content, so that a browser may keep the file."""
    content, _ = _files()[name]
    return f"static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"


def static_file(name: str) -> Response | None:
    """Return the answer with a file, or None if there is none of this name."""
    found = _files().get(name)
    if found is None:
        return None
    content, media_type = found
    headers = {"Cache-Control": "private, max-age=86400", "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type=media_type, headers=headers)


_SALT: Final = "fluss-lake-tiering-note"
_SECONDS: Final = 60
_MAX_CHARACTERS: Final = 600
"""The length of an address is limited."""


@dataclass(frozen=True, slots=True)
class Note:
    """What an action did.

    Attributes:
        done: Whether it did what was wanted.
        text: The result in a sentence.
    """

    done: bool
    text: str


def write_note(note: Note) -> str:
    """Return the note for an address."""
    return str(_serializer().dumps([note.done, note.text[:_MAX_CHARACTERS]]))


def read_note(written: str) -> Note | None:
    """Return the note of an address; None if there is none, or if it is older than a minute."""
    try:
        done, text = _serializer().loads(written, max_age=_SECONDS)
    except BadData:
        return None
    return Note(done, text)


def _serializer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(conf.get_mandatory_value("api", "secret_key"), salt=_SALT)
