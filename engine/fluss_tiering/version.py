"""The version of the package. Calls of a client and a server of one minor version fit together."""

from __future__ import annotations

__version__ = "0.1.0"


def other_version(server: str) -> str | None:
    """Return a warning if the server is of another minor version than this package; None if it is not."""
    if not server or _minor(server) == _minor(__version__):
        return None
    return (
        f"the tiering server is fluss-tiering {server} and this is {__version__}: expected one minor version, since "
        "calls may differ; upgrade the older one"
    )


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
