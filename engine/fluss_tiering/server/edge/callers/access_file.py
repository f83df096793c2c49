"""The file that gives roles to identities that others vouch for: certificates, and those of OpenID Connect.

It is TOML:

    [[grants]]
    identity = "certificate/CN=airflow"
    role = "tierer"
    tables = ["shop.*"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers import certificate_names
from fluss_tiering.server.edge.callers.roles import ALL_TABLES, Grant
from fluss_tiering.server.edge.watched_files import WatchedFiles

_KEYS: Final = {"identity", "role", "tables"}
KINDS: Final = (*certificate_names.KINDS, "oidc/", "oidc-group/")
"""How the names of identities begin that the file may give roles to."""


class AccessFile:
    """The roles in a file, which is read again when it changes.

    Attributes:
        watched: What the file holds.

    Raises:
        FlussTieringError: The errors of `read_access`, and those of `WatchedFiles`.
    """

    def __init__(self, path: Path) -> None:
        self.watched = WatchedFiles("the access file", [path], lambda: read_access(path))

    def grants_of(self, names: Iterable[str]) -> tuple[Grant, ...]:
        """Return the roles of an identity that has these names."""
        content = self.watched.content
        return tuple(grant for name in dict.fromkeys(names) for grant in content.get(name, ()))


def read_access(path: Path) -> Mapping[str, tuple[Grant, ...]]:
    """Return the roles that a file gives, by the name of the identity.

    Raises:
        FlussTieringError: INVALID_REQUEST if the file cannot be read, or if something in it is wrong.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise _invalid(path, f"cannot be read: {error.strerror or error}; expected a file in TOML") from error
    except ValueError as error:
        raise _invalid(path, f"is no TOML: {error}") from error
    if not content:
        raise _invalid(path, "is empty: expected [[grants]]; to give roles to nobody, write grants = []")
    entries = content.pop("grants", [])
    if content or not isinstance(entries, list):
        raise _invalid(
            path, f"has {', '.join(content) or 'grants that are no list'}: expected [[grants]] and nothing else"
        )
    found: dict[str, tuple[Grant, ...]] = {}
    for number, entry in enumerate(entries, 1):
        try:
            identity, grants = _grants_in(entry)
        except FlussTieringError as error:
            raise _invalid(path, f"is wrong in entry {number} of [[grants]]: {error.message}") from error
        found[identity] = found.get(identity, ()) + grants
    return found


def _grants_in(entry: Any) -> tuple[str, tuple[Grant, ...]]:  # noqa: ANN401 - whatever the file holds
    if not isinstance(entry, dict) or not {"identity", "role"} <= entry.keys() <= _KEYS:
        found = f"it has {', '.join(entry) or 'nothing'}" if isinstance(entry, dict) else f"it is {entry!r}"
        raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{found}: expected identity, role and perhaps tables")
    identity, role, tables = entry["identity"], entry["role"], entry.get("tables", [ALL_TABLES])
    _check_name(identity)
    if not isinstance(tables, list) or not all(isinstance(each, str) for each in tables):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f'tables is {tables!r}: expected a list of patterns, for example ["shop.*"]'
        )
    return identity, tuple(Grant.parse(str(role), each) for each in tables)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.startswith(KINDS):
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"identity is {name!r}: expected a name that begins with {' or '.join(KINDS)}",
        )
    if name.startswith(certificate_names.SUBJECT) and "=" not in name:
        # It would never be the name of anybody.
        _, *others = certificate_names.KINDS
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"identity is {name!r}, which is no subject: expected one such as certificate/CN=airflow,O=shop; "
            f"alternative names begin with {' or '.join(others)}",
        )


def _invalid(path: Path, what: str) -> FlussTieringError:
    return FlussTieringError(ErrorCode.INVALID_REQUEST, f"the access file {path} {what}")
