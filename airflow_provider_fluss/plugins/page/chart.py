"""The history of a table's rounds: folded for a list, and as charts of SVG elements with a bar for each round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from airflow_provider_fluss.plugins.page import text
from airflow_provider_fluss.plugins.page.selection import INTERRUPTED
from fluss_tiering.model.tiering import TieringRound, TieringState
from fluss_tiering.plural import counted

WIDTH: Final = 400
HEIGHT: Final = 132
_TOP: Final = 14
_PLOT: Final = 96
"""The height of the highest bar."""
_LEFT: Final = 58
"""The place of the first bar, if the labels of the scale need no more room."""
_CHARACTER: Final = 7
"""The width of a character of a label, rather too wide."""
_GAP: Final = 2
_WIDEST_BAR: Final = 28
_SHORTEST_BAR: Final = 2.0
"""A round of no rows or no time is to be seen, too."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The bar of one round, with its place in the coordinates of the SVG."""

    x: float
    y: float
    width: float
    height: float
    outcome: str
    title: str
    epoch: int
    start_time: int


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Attributes:
        title: What the chart shows.
        summary: The chart in a sentence, for people who do not see it.
        bars: The bars, the oldest round first.
        lines: The lines of the scale: place from above, and label.
        left: Where the lines begin. Their labels end before it.
    """

    title: str
    summary: str
    bars: tuple[Bar, ...]
    lines: tuple[tuple[float, str], ...]
    left: int


def charts(rounds: Sequence[TieringRound], now: int) -> list[Chart]:
    """Return the charts of how long the rounds took, of how many rows they wrote, and of the lag that they ended.

    Rounds without rows are left out.

    Args:
        rounds: The rounds of one table, in any order.
        now: The present time in ms since the epoch, for a round that still runs.
    """
    in_order = sorted(rounds, key=lambda each: each.tiering_epoch)
    shown = [each for each in in_order if not is_empty(each)]
    return [
        _chart("Duration of each round", shown, lambda each: took(each, now), text.took),
        _chart("Rows of each round", shown, lambda each: each.stats.rows if each.stats else 0, text.count),
        _chart("Lag at the end of each round", shown, lambda each: _lag(each, now), text.took),
    ]


def is_empty(each: TieringRound) -> bool:
    """Return whether the round succeeded and found nothing to write."""
    return each.state is TieringState.TIERED and each.stats is not None and each.stats.lake_snapshot_id is None


def folded(rounds: Iterable[TieringRound]) -> list[list[TieringRound]]:
    """Return the rounds one by one, but those without rows that follow each other together."""
    return [
        part
        for empty, group in groupby(rounds, is_empty)
        for part in ([list(group)] if empty else [[each] for each in group])
    ]


def outcome(each: TieringRound) -> str:
    """Return how the round ended, or that it runs. What a person or the infrastructure ended is no failure."""
    return INTERRUPTED if each.interrupted else each.state.value


def took(each: TieringRound, now: int) -> int:
    """Return how long the round took, or has taken so far, in milliseconds."""
    return max(0, _end(each, now) - each.start_time)


def _lag(each: TieringRound, now: int) -> int:
    """Return for how long the oldest record had waited when the round ended, in milliseconds."""
    return 0 if each.waiting_since is None else max(0, _end(each, now) - each.waiting_since)


def _end(each: TieringRound, now: int) -> int:
    return now if each.end_time is None else each.end_time


def _chart(
    title: str, rounds: Sequence[TieringRound], value: Callable[[TieringRound], int], show: Callable[[int], str]
) -> Chart:
    values = [value(each) for each in rounds]
    top = max(values, default=0) or 1
    left = max(_LEFT, _CHARACTER * len(show(top)) + 10)
    step = min(_WIDEST_BAR + _GAP, (WIDTH - left) / max(len(rounds), 1))
    bars = tuple(
        Bar(
            x=round(left + index * step, 2),
            y=round(_TOP + _PLOT - height, 2),
            width=round(step - _GAP, 2),
            height=round(height, 2),
            outcome=outcome(each),
            title=f"{text.utc(each.start_time)}, epoch {each.tiering_epoch}: {outcome(each)}, {show(amount)}",
            epoch=each.tiering_epoch,
            start_time=each.start_time,
        )
        for index, (each, amount) in enumerate(zip(rounds, values, strict=True))
        for height in [max(_SHORTEST_BAR, _PLOT * amount / top)]
    )
    failed = sum(outcome(each) == TieringState.FAILED.value for each in rounds)
    summary = (
        f"{title}: {counted(len(rounds), 'round')}, {failed} of them failed; "
        f"the highest value is {show(max(values, default=0))}."
    )
    return Chart(title, summary, bars, ((_TOP, show(top)), (_TOP + _PLOT, "0")), left)
