"""Standard input as a source of CSV. Ctrl-C ends a read that waits for more of it."""

from __future__ import annotations

import io
import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final

import pyarrow as pa

from fluss_tiering.cli.row_files.csv_quotes import OpenQuotes

_REMEMBERED: Final = 65_536
"""How many bytes of standard input are kept, in which the names of the columns are looked for."""
_READ_BYTES: Final = 2**20
"""How many bytes of a pipe are read at once. A pipe of Linux holds 64 KiB, or 1 MiB if it was made larger."""
_SIGNALS: Final = 1024


class RememberedInput(io.RawIOBase):
    """A stream that keeps the bytes with which it began, for the names of the columns in an error.

    It also looks for a quote that nothing closes.

    Args:
        stream: The stream.
        interrupts: A file descriptor that can be read once a signal has come, with the number of the signal as a byte.
            None if nothing ends a read that waits.
    """

    def __init__(self, stream: BinaryIO, interrupts: int | None = None) -> None:
        self._stream = stream
        self._interrupts = interrupts
        self._quotes = OpenQuotes()
        self._ended = False
        self.beginning = b""

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read up to so many bytes, or all that are left. There are fewer only at the end of the stream.

        Raises:
            KeyboardInterrupt: If Ctrl-C was pressed.
        """
        found = self._stream.read(size) if self._interrupts is None else self._read(size, self._interrupts)
        self.beginning += found[: _REMEMBERED - len(self.beginning)]
        self._quotes.read(found)
        self._ended = not found
        return found

    def line_of_open_quote(self, *, so_far: bool = False) -> int | None:
        """Return the line on which the row with an open quote begins, from 1; None if there is none.

        Before the end of the stream it is None, too, unless only what was read so far counts.
        """
        return self._quotes.line() if self._ended or so_far else None

    def _read(self, size: int, interrupts: int) -> bytes:
        source, found = self._stream.fileno(), bytearray()
        while size < 0 or len(found) < size:
            readable, _, _ = select.select([source, interrupts], [], [])
            if interrupts in readable and signal.SIGINT in os.read(interrupts, _SIGNALS):
                raise KeyboardInterrupt
            if source in readable:
                part = os.read(source, _READ_BYTES if size < 0 else min(_READ_BYTES, size - len(found)))
                if not part:
                    break
                found += part
        return bytes(found)


@contextmanager
def remembered_input(stream: BinaryIO) -> Iterator[RememberedInput]:
    """Return the stream so that Ctrl-C ends a read of it in any thread.

    pyarrow reads in a thread of its own, and the thread that Python interrupts waits for pyarrow meanwhile. A stream
    without a file descriptor never waits: it is read as it is. The same is done outside the main thread, which alone
    may hear of signals.
    """
    if not _has_file_descriptor(stream) or threading.current_thread() is not threading.main_thread():
        yield RememberedInput(stream)
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    # pyarrow would take SIGINT for itself while it opens a file, and would not end a read for it.
    pa.enable_signal_handlers(False)
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        yield RememberedInput(stream, heard)
    finally:
        signal.set_wakeup_fd(before)
        pa.enable_signal_handlers(True)
        os.close(heard)
        os.close(told)


def _has_file_descriptor(stream: BinaryIO) -> bool:
    try:
        stream.fileno()
    except io.UnsupportedOperation:
        return False
    return True
