"""What keeps others from the server and from its files, for the log."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from stat import S_IMODE, S_IRWXG, S_IRWXO
from typing import Final

import structlog

from fluss_tiering.server.settings.server_settings import ServerSettings

PRIVATE_UMASK: Final = S_IRWXG | S_IRWXO
"""With this umask, nobody else reads what the server writes: rows, and the key that signs tokens of executors."""

logger = structlog.get_logger(__name__)


def guards_of(settings: ServerSettings) -> str:
    """Return what guards the server's ports, for example "tls, client certificates, tokens"."""
    guards = {
        "tls": settings.tls_files is not None,
        "client certificates": settings.tls_client_ca_file is not None,
        "tokens": settings.tokens_file is not None,
        "oidc": settings.oidc is not None,
    }
    return ", ".join(name for name, is_there in guards.items() if is_there) or "nothing"


def raise_descriptor_limit() -> None:
    """Let this process open as many files and connections as the system permits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems permit fewer than they say.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def warn_of_open_folder(folder: Path) -> None:
    """Log it if others on the machine may look into the data folder, and into a database that an older server made."""
    modes = {path: S_IMODE(path.stat().st_mode) for path in (folder, *folder.glob("*.db"))}
    if not modes[folder] & PRIVATE_UMASK:
        return
    for path, mode in modes.items():
        if mode & PRIVATE_UMASK:
            logger.warning(
                "others on this machine may read what holds rows and keys: take the rights of group and others away",
                path=str(path),
                mode=f"{mode:04o}",
                command=f"chmod go-rwx {path}",
            )
