"""Names of the files that a round writes: they tell the round, so that what no snapshot refers to can be judged."""

from __future__ import annotations

import re
import uuid
from typing import Final

_ROUND_FILE: Final = re.compile(r"(?:^|/)\d{5,}-e(\d+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[^/]*$")


def round_file_name(piece: int, tiering_epoch: int, attempt: uuid.UUID | str) -> str:
    """How the names of a piece's files begin; the "e" tells them from Spark's, which have a task id in that place.

    Args:
        piece: its number in the round.
        tiering_epoch: of the round.
        attempt: a UUID of this one attempt to run the round, or to commit it.
    """
    return f"{piece:05d}-e{tiering_epoch}-{attempt}"


def epoch_of_file(location: str) -> int | None:
    """The tiering epoch of the round that wrote a file; None for a file of somebody else."""
    match = _ROUND_FILE.search(location)
    return None if match is None else int(match.group(1))
