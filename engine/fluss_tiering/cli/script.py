"""Where the console script begins. Ctrl-C also ends it quietly while it still imports the commands."""

import sys


def main() -> None:
    """Run the console script and exit with its code."""
    try:
        from fluss_tiering.cli.main import main as run  # noqa: PLC0415 - this takes a second, in which Ctrl-C may come
    except KeyboardInterrupt:
        sys.exit(130)
    run()
