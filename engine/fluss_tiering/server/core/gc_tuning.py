"""Keeps the objects that a server has loaded out of Python's garbage collections.

A garbage collection stops all threads while it looks at every object. With ten thousand tables that takes 0.2 s, again
and again, because each heartbeat replaces values that had lasted.

An object that is kept out is never freed by a collection, even if it has become garbage. So objects are kept out only
while the server loads, and what is garbage then is collected before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Switch garbage collection off during a block that makes many lasting objects, and keep them out of later ones."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        keep_loaded()
    finally:
        if was_enabled:
            gc.enable()


def keep_loaded() -> None:
    """Collect what is garbage, and keep the other objects out of later collections. Call it while the server loads.

    It looks only at objects that were made since the last call, so that each of many steps may call it.
    """
    gc.collect()
    gc.freeze()


def release_all() -> None:
    """Let garbage collections look at all objects again."""
    gc.unfreeze()
