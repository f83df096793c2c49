"""What a server has loaded is kept out of Python's garbage collections.

A collection holds up all threads while it looks through every object: with ten thousand tables for 0.2 s, again and
again, since each heartbeat replaces values that had lasted.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """A block that makes much that stays: nothing is looked through meanwhile, and what is there then no more."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def keep_all() -> None:
    """What is in use is not looked through any more; takes no time, so it may be called after each of many steps."""
    gc.freeze()


def release_all() -> None:
    """Looks through everything again."""
    gc.unfreeze()
