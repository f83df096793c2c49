"""Defects that were mended, put back by a small patch, to show that a run finds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fluss_tiering.spark.round import plan


@dataclass(frozen=True)
class Planted:
    """A defect, and a pattern for what finds it.

    Attributes:
        switch_on: Patches the code of this process, for good.
        shown_by: A regular expression for the kind of what is found.
    """

    switch_on: Callable[[], None]
    shown_by: str


def _begins_at_zero() -> None:
    original = plan._range

    def begins_at_zero(info: Any, tiered: int, leased: Any, *, begins: bool) -> Any:
        return original(info, tiered, leased, begins=False)

    plan._range = begins_at_zero


DEFECTS: Final[Mapping[str, Planted]] = {
    "D44": Planted(_begins_at_zero, "a round fails"),
}
"""The defects, by their numbers."""
