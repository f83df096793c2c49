"""Watches the disks that a run writes to: a program that finds its disk full may wait, and never say why."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

NEEDED_BYTES: Final = 512 << 20
"""How much space a run needs in its folder, with a lot to spare: its data is 30 MiB, and a cluster has its own."""
_FULL_BYTES: Final = 16 << 20
"""With less space than this, some program of a run cannot write its next file."""
_LOOK_SECONDS: Final = 1.0
_SIGNAL: Final = signal.SIGUSR1


@contextmanager
def enough_space(folder: Path, needed: int = NEEDED_BYTES) -> Iterator[None]:
    """Require space in the folder of a run, and end the block as soon as a disk is full.

    It is for the main thread. The folder for temporary files, to which Spark writes, is watched, too.

    Args:
        folder: The folder of the run. It exists.
        needed: How many bytes it needs at the start.

    Raises:
        SystemExit: The folder has too little space at the start, or a disk is full. The message names the folder.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SystemExit(
            f"error: the disk of {folder} has {_mebibytes(free)} left: expected at least {_mebibytes(needed)}; "
            f"{_remedy()}"
        )
    watched = (folder, Path(tempfile.gettempdir()))
    ended = threading.Event()
    before = signal.signal(_SIGNAL, lambda number, frame: _end(watched, number, frame))
    watcher = threading.Thread(target=_watch, args=(watched, ended), daemon=True)
    watcher.start()
    try:
        yield
    except (Exception, SystemExit) as error:
        if (text := _full_text(watched)) is None:
            raise
        raise SystemExit(text) from error
    finally:
        ended.set()
        watcher.join()
        signal.signal(_SIGNAL, before)


def _watch(folders: Sequence[Path], ended: threading.Event) -> None:
    while not ended.wait(_LOOK_SECONDS):
        if _full_text(folders) is not None:
            # A signal of the kernel ends what the main thread waits for, too.
            signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)
            return


def _end(folders: Sequence[Path], number: int, frame: FrameType | None) -> None:
    del number, frame
    # The disk may have space again when the main thread gets here.
    raise SystemExit(_full_text(folders) or "error: a disk was full for a moment; start again")


def _full_text(folders: Sequence[Path]) -> str | None:
    for folder in folders:
        free = shutil.disk_usage(folder).free
        if free < _FULL_BYTES:
            return f"error: the disk of {folder} is full, with {_mebibytes(free)} left: {_remedy()}"
    return None


def _remedy() -> str:
    return "free space there, or take a folder on another disk: ARGS='--folder FOLDER', and TMPDIR for temporary files"


def _mebibytes(number: int) -> str:
    return f"{number >> 20} MiB"
