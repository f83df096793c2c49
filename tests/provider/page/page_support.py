"""How tests reach the page: users of Airflow, and requests as a browser sends them."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, Final

import httpx
from page_auth_manager import OUTSIDER

from waiting import wait_until

# The pages have no TLS, and httpx reads the machine's certificates for each client that is given no context.
_WITHOUT_CERTIFICATES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
USERS: Final = {"olga": "op", "vera": "viewer", OUTSIDER: "op"}
"""The role of each user. Passwords are names."""


@dataclass(frozen=True)
class AirflowPage:
    """A running API server: the origin of its address, and the path of its base URL."""

    origin: str
    path: str

    @property
    def url(self) -> str:
        return f"{self.origin}{self.path}"

    def token(self, user: str) -> str:
        with self._client() as client:
            answer = client.post("/auth/token", json={"username": user, "password": user})
        return str(answer.raise_for_status().json()["access_token"])

    def session(self, user: str | None) -> httpx.Client:
        """Return a client of the page with the cookie of the user, as a browser sends it; without one if it is None."""
        cookies = {} if user is None else {"_token": self.token(user)}
        headers = {"Accept": "text/html"}
        return self._client("/lake-tiering/", cookies=cookies, headers=headers)

    def api(self, user: str) -> httpx.Client:
        """Return a client of Airflow's REST API."""
        return self._client(headers={"Authorization": f"Bearer {self.token(user)}"})

    def _client(self, path: str = "", **options: Any) -> httpx.Client:
        return httpx.Client(base_url=f"{self.url}{path}", verify=_WITHOUT_CERTIFICATES, timeout=60, **options)


def see(
    session: httpx.Client, path: str, *, until: Callable[[httpx.Response], object], **params: Any
) -> httpx.Response:
    """Return the page once it is as the test expects: the API server keeps what a server said for two seconds."""
    return wait_until(lambda: found if until(found := session.get(path, params=params)) else None)


def see_rows(session: httpx.Client, number: int, path: str = "./", **params: Any) -> list[dict[str, str]]:
    """Return the rows of the page once there are so many."""
    return rows_of(see(session, path, until=lambda answer: len(rows_of(answer)) == number, **params))


class _Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th"}:
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data


def rows_of(answer: httpx.Response) -> list[dict[str, str]]:
    """Return the rows of the first table of a page: the text of each cell by its heading."""
    parser = _Cells()
    parser.feed(answer.text)
    if not parser.rows:
        return []
    headings, *rows = [[re.sub(r"\s+", " ", cell).strip() for cell in row] for row in parser.rows]
    return [dict(zip(headings, row, strict=True)) for row in rows]


def facts_of(answer: httpx.Response) -> dict[str, str]:
    """Return the facts of the page of a table by their names."""
    found = re.findall(r"<dt[^>]*>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>", answer.text, re.DOTALL)
    return {name: re.sub(r"<[^>]*>", "", value).strip() for name, value in found}
