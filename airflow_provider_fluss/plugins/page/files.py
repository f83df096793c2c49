"""The style sheet, the scripts and the icons. They come with the package; the page loads nothing from elsewhere."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from fastapi import Response

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
