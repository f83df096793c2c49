"""What a run prints: a line for each plan, and at the end what was done, compared, left out and found."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

from torture.judging.checks import Tally


@dataclass
class Found:
    """Something that was found.

    Attributes:
        seed: The seed of the first plan that found it.
        minutes: After how many minutes it was found.
        message: What was wrong.
        times: How many plans have found it.
    """

    seed: int
    minutes: float
    message: str
    times: int = 1


@dataclass
class Report:
    """What happened so far."""

    tally: Tally = field(default_factory=Tally)
    found: dict[str, Found] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self.began) / 60

    def add(self, kind: str, seed: int, message: str) -> None:
        """Note that something was found."""
        if kind in self.found:
            self.found[kind].times += 1
        else:
            self.found[kind] = Found(seed, self.minutes, message)

    def show(self, seeds: range) -> None:
        """Print the summary."""
        say(f"seeds {seeds.start} to {seeds.stop - 1}, {self.minutes:.1f} minutes")
        tally = self.tally
        for title, counter in (
            ("done", tally.counts),
            ("compared", tally.comparisons),
            ("seconds", tally.seconds),
            ("left out, and why", tally.left_out),
            ("refused, as it may be", tally.refused),
        ):
            say(f"{title}:")
            for name, count in sorted(counter.items()):
                say(f"  {count:10,.0f} {name}")
        say("found:" if self.found else "found nothing")
        for kind, each in self.found.items():
            say(f"  {each.times} x {kind}: first by seed {each.seed} after {each.minutes:.1f} minutes")


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
