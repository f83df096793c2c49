"""Say why old snapshots of a lake table are not expired."""

from __future__ import annotations

from fluss_tiering.cli.common import output
from fluss_tiering.model.table import TablePath


def print_kept(path: TablePath, needed: int) -> None:
    """Print how many old snapshots are kept nevertheless, if any.

    Args:
        path: The table.
        needed: The number of old snapshots that must be kept.
    """
    if needed:
        kept = "1 old snapshot is" if needed == 1 else f"{needed:,} old snapshots are"
        output.print_sentence(f"{path}: {kept} kept for Fluss's readers or for recovery")
