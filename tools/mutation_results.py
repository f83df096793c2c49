"""What came of the mutants of a package: which were killed, which survive, and which may.

`mutate.py` makes the mutants and tries them. This module reads mutmut's results and the list of accepted survivors.
"""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

ACCEPTED: Final = Path(__file__).resolve().parent.parent / "tests" / "mutation" / "accepted.toml"
GOAL: Final = 90
"""The part of the mutants that has to be killed, in percent."""

_STATUSES: Final[Mapping[int | None, str]] = {
    None: "untried",
    0: "survived",
    1: "killed",
    3: "killed",
    5: "untested",
} | {
    33: "untested",
    36: "timeout",
    24: "timeout",
    -24: "timeout",
    152: "timeout",
    255: "timeout",
}
"""What mutmut's codes mean. Any other code is that of a test process that died."""
DEAD: Final = {"killed", "timeout", "crashed"}


@dataclass(frozen=True)
class Mutant:
    """One break of a function.

    Attributes:
        name: mutmut's name of it.
        function: The module, class and function that it breaks.
        removed: The lines that it changes, without their indentation.
        added: What is in their place.
        status: What came of it.
    """

    name: str
    function: str
    removed: str
    added: str
    status: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is known by in the list of accepted survivors: no number that moves when code is added."""
        return self.function, self.removed, self.added


def status_of(code: int | None) -> str:
    """Return what an exit code of mutmut says of a mutant: killed, survived, untested, timeout, crashed or untried."""
    return _STATUSES.get(code, "crashed")


def results(copy: Path, package: str) -> Iterator[Mutant]:
    """Return all mutants of the package with what came of each."""
    with chdir(copy):
        from mutmut.mutation.diff_apply import get_diff_for_mutant  # noqa: PLC0415 - it reads its settings here

        for meta in sorted(Path("mutants", "fluss_tiering", package).rglob("*.meta")):
            source = meta.relative_to("mutants").with_suffix("")
            for name, code in json.loads(meta.read_text())["exit_code_by_key"].items():
                status = status_of(code)
                removed, added = "", ""
                if status not in DEAD:
                    removed, added = changed_lines(get_diff_for_mutant(name, path=source))
                yield Mutant(name, function_name(name), removed, added, status)


def function_name(mutant: str) -> str:
    """Return the function that a mutant breaks.

    >>> function_name("fluss_tiering.server.core.leases.manager.xǁLeasesǁdrop__mutmut_3")
    'fluss_tiering.server.core.leases.manager.Leases.drop'
    """
    module, _, mangled = mutant.partition("__mutmut_")[0].rpartition(".")
    return f"{module}.{re.sub('^x_', '', mangled).removeprefix('xǁ').replace('ǁ', '.')}"


def changed_lines(diff: str) -> tuple[str, str]:
    """Return what a diff removes and adds, without indentation."""

    def lines(sign: str) -> str:
        kept = (
            line[1:].strip() for line in diff.splitlines() if line.startswith(sign) and not line.startswith(sign * 3)
        )
        return "\n".join(kept)

    return lines("-"), lines("+")


def accepted(text: str, package: str) -> dict[tuple[str, str, str], str]:
    """Return the accepted survivors of the package, each with its reason."""
    module = f"fluss_tiering.{package.replace('/', '.')}."
    entries = tomllib.loads(text).get("survivor", [])
    return {
        (f"fluss_tiering.{each['function']}", each["removed"].strip(), each["added"].strip()): each["reason"]
        for each in entries
        if f"fluss_tiering.{each['function']}".startswith(module)
    }


def left_out(text: str, package: str) -> dict[str, str]:
    """Return the functions of the package of which no mutants count, with * for any characters, and the reasons."""
    entries = tomllib.loads(text).get("left-out", [])
    module = f"{package.replace('/', '.')}."
    return {
        f"fluss_tiering.{each['function']}": each["reason"] for each in entries if each["function"].startswith(module)
    }


def matches(function: str, patterns: Iterable[str]) -> bool:
    """Return whether the name of a function fits one of the patterns, which may have * for any characters."""
    return any(fnmatch.fnmatchcase(function, pattern) for pattern in patterns)


def report(
    package: str,
    mutants: Sequence[Mutant],
    reasons: Mapping[tuple[str, str, str], str],
    without: Collection[str] = (),
) -> int:
    """Print the score and the survivors, and return the exit code: 0 if the goal is met and all survivors are known.

    Mutants that were not tried count for nothing, and neither do the entries of the list that are about them.

    Args:
        package: The package.
        mutants: Its mutants.
        reasons: The accepted survivors with their reasons.
        without: The functions that are left out.
    """
    every = len(mutants)
    mutants = [mutant for mutant in mutants if not matches(mutant.function, without)]
    counts = Counter(mutant.status for mutant in mutants)
    dead = sum(counts[status] for status in DEAD)
    tried = [mutant for mutant in mutants if mutant.status != "untried"]
    alive = [mutant for mutant in tried if mutant.status not in DEAD]
    unknown = [mutant for mutant in alive if mutant.key not in reasons]
    for mutant in unknown:
        _show(mutant)
    gone = set(reasons) - {mutant.key for mutant in mutants if mutant.status not in DEAD}
    for function, removed, added in sorted(gone):
        print(f"no longer survives, remove it from {ACCEPTED.name}: {function}: {removed} -> {added}")
    score = 100 * dead / len(tried) if tried else 0.0
    for module, of_module in groupby(sorted(mutants, key=_module), key=_module):
        print(f"  {module}: {_counted(list(of_module))}")
    print(
        f"{package}: {score:.1f} % of {len(tried)} mutants were killed, {counts['timeout']} of them by the time "
        f"limit; {len(alive) - len(unknown)} survivors are accepted, {len(unknown)} are not; "
        f"{counts['untried']} mutants were not tried, and {every - len(mutants)} are of functions that are left out"
    )
    return 0 if score >= GOAL and not unknown and not gone else 1


def named(mutants: Iterable[Mutant], patterns: Collection[str]) -> list[Mutant]:
    """Return the mutants whose names fit one of the patterns, as mutmut compares them."""
    return [mutant for mutant in mutants if any(fnmatch.fnmatch(mutant.name, pattern) for pattern in patterns)]


def report_chosen(mutants: Sequence[Mutant], reasons: Collection[tuple[str, str, str]]) -> int:
    """Print what came of each mutant, and return the exit code: 0 if all were killed or are accepted survivors.

    Args:
        mutants: The mutants that were chosen by their names.
        reasons: The accepted survivors of the package.
    """
    bad = [mutant for mutant in mutants if mutant.status not in DEAD and mutant.key not in reasons]
    for mutant in mutants:
        if mutant.status in DEAD:
            print(f"{mutant.status}: {mutant.name}")
        else:
            _show(mutant)
    dead = sum(mutant.status in DEAD for mutant in mutants)
    print(
        f"{dead} of {len(mutants)} chosen mutants were killed, {len(mutants) - dead - len(bad)} are accepted survivors"
    )
    return 1 if bad else 0


def _module(mutant: Mutant) -> str:
    return mutant.name.partition(".x")[0].removeprefix("fluss_tiering.")


def _counted(mutants: Sequence[Mutant]) -> str:
    tried = [mutant for mutant in mutants if mutant.status != "untried"]
    return f"{sum(each.status in DEAD for each in tried)} of {len(tried)} killed, {len(mutants)} in all"


def _show(mutant: Mutant) -> None:
    print(f"{mutant.status}: {mutant.name}")
    print(_indented("-", mutant.removed))
    print(_indented("+", mutant.added))


def _indented(sign: str, text: str) -> str:
    return "\n".join(f"    {sign} {line}" for line in _lines(text))


def _lines(text: str) -> Iterable[str]:
    return text.splitlines() or [""]
