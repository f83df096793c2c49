"""Where the console script begins and ends. Ctrl-C also ends it quietly while it still imports the commands."""

import atexit
import os
import sys
from contextlib import suppress


def main() -> None:
    """Run the console script and exit with its code."""
    code = 1

    def leave() -> None:
        # Threads of pyarrow and gRPC may outlive a command, and crash the process if they meet an interpreter that is
        # being taken apart. What is registered first runs last: all else that is to be done at the exit is done.
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(code)

    atexit.register(leave)
    try:
        from fluss_tiering.cli.main import main as run  # noqa: PLC0415 - this takes a second, in which Ctrl-C may come

        run()
        code = 0
    except KeyboardInterrupt:
        code = 130
        sys.exit(code)
    except SystemExit as end:
        # Only numbers are given here: a text is printed where it arises.
        code = int(end.code or 0)
        raise
