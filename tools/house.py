"""Print how the code is divided: files and rooms of each package, the arrows between them, floors, circles.

The rooms of a package are its files and its sub-packages. An arrow leads from a room to another room of the same
package when a file in the first imports something of the second. The rooms that import no other stand on the ground
floor; any other room stands one floor above the highest that it imports. In a circle of rooms that is not possible.
There the arrows with the fewest imports are left out until it is, and they are called upward arrows.

The exit status is 1 when the code has a circle, or a package with more than 16 files beside its sub-packages.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

MAX_FILES: Final = 16
_PACKAGES: Final = ("engine/fluss_tiering", "airflow_provider_fluss")
_GENERATED: Final = "fluss_tiering.api"
_LEGEND: Final = """\
A room is a file or a sub-package. An arrow is an import between two rooms. A room is one floor above the highest room
that it imports. A circle is rooms that import each other. Upward arrows are the imports to remove to end a circle."""

Arrow = tuple[str, str]


@dataclass(frozen=True)
class Package:
    """One package, seen from inside.

    Attributes:
        name: The dotted name.
        files: The modules beside the sub-packages; `__init__` is one of them only when it imports something.
        folders: The sub-packages.
        arrows: Room -> room, with the number of imports.
        upward: The arrows that lead from a lower floor to a higher one.
        floors: The rooms of each floor, from the ground up.
        circles: Rooms that import each other, directly or through others.
    """

    name: str
    files: frozenset[str]
    folders: frozenset[str]
    arrows: Mapping[Arrow, int]
    upward: frozenset[Arrow]
    floors: list[list[str]]
    circles: list[list[str]]

    @property
    def rooms(self) -> int:
        """The number of rooms."""
        return len(self.files) + len(self.folders)

    @property
    def problems(self) -> Iterator[str]:
        """What is wrong with the package, a sentence each."""
        for circle in self.circles:
            yield f"{self.name}: a circle of imports: {', '.join(circle)}"
        if len(self.files) > MAX_FILES:
            yield f"{self.name}: {len(self.files)} files beside its sub-packages, at most {MAX_FILES} are allowed"


def survey(root: Path) -> list[Package]:
    """Return every package below the project's root."""
    modules = _modules(root)
    imports = Counter(
        (name, target) for name, path in modules.items() for target in _imports(name, path, modules) if target != name
    )
    packages = {package for name in modules for package in _parents(name)}
    return [_package(name, modules, packages, imports) for name in sorted(packages)]


def table(packages: Sequence[Package]) -> str:
    """Return the packages as a table, with a line for all of them."""
    rows: list[tuple[str, ...]] = [("package", "files", "folders", "rooms", "arrows", "floors", "circles", "upward")]
    numbers = [
        (
            *(len(each.files), len(each.folders), each.rooms, len(each.arrows)),
            *(len(each.floors), len(each.circles), len(each.upward)),
        )
        for each in packages
    ]
    rows += [(each.name, *map(str, counted)) for each, counted in zip(packages, numbers, strict=True)]
    sums = [sum(column) for column in zip(*numbers, strict=True)]
    # The rooms and floors of different packages do not add up to anything: the widest and the highest are shown.
    sums[2], sums[4] = max(counted[2] for counted in numbers), max(counted[4] for counted in numbers)
    rows.append(("all (rooms, floors: most)", *map(str, sums)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) if number else cell.ljust(width) for number, (cell, width) in enumerate(cells))
        for cells in (zip(row, widths, strict=True) for row in rows)
    )


def plan(package: Package) -> str:
    """Return the floors of a package, and what each room imports of the others."""
    lines = [package.name]
    for number, rooms in reversed(list(enumerate(package.floors))):
        lines.append(f"  floor {number}")
        for room in rooms:
            below = ", ".join(sorted(target for source, target in package.arrows if source == room))
            lines.append(f"    {room}{'/' if room in package.folders else ''}{' -> ' if below else ''}{below}")
    return "\n".join(lines)


def main() -> int:
    """Print the tables; the exit status says whether the house is in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="another checkout")
    parser.add_argument("--plan", metavar="PACKAGE", action="append", default=[], help="show the floors of a package")
    arguments = parser.parse_args()
    packages = survey(arguments.root)
    print(_LEGEND, table(packages), sep="\n\n")
    for package in packages:
        if package.name in arguments.plan:
            print("", plan(package), sep="\n")
        for source, target in sorted(package.upward):
            print(f"{package.name}: upward: {source} -> {target}")
    problems = [problem for package in packages for problem in package.problems]
    print(*problems, sep="\n", file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


def _modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file; a package stands for its `__init__`."""
    found = {}
    for package in (root / each for each in _PACKAGES):
        for path in sorted(package.rglob("*.py")):
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            if not _within(name, _GENERATED):
                found[name] = path
    return found


def _imports(name: str, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports, once for each name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            asked = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            within = ".".join(name.split(".")[: -node.level]) if node.level else ""
            module = ".".join(filter(None, (within, node.module)))
            asked = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for each in asked:
            yield from filter(None, [_module_of(each, modules)])


def _module_of(imported: str, modules: Mapping[str, Path]) -> str | None:
    """Return the module that holds an imported name, or None when it is not one of ours."""
    while imported and imported != _GENERATED:
        for candidate in (imported, f"{imported}.__init__"):
            if candidate in modules:
                return candidate
        imported = imported.rpartition(".")[0]
    return None


def _package(name: str, modules: Mapping[str, Path], packages: Iterable[str], imports: Mapping[Arrow, int]) -> Package:
    folders = frozenset(each.removeprefix(f"{name}.") for each in packages if each.rpartition(".")[0] == name)
    arrows: Counter[Arrow] = Counter()
    for (source, target), count in imports.items():
        if _within(source, name) and _within(target, name):
            arrow = (_room(source, name), _room(target, name))
            if arrow[0] != arrow[1]:
                arrows[arrow] += count
    files = {each.rpartition(".")[2] for each in modules if each.rpartition(".")[0] == name}
    if not any("__init__" in arrow for arrow in arrows):
        files.discard("__init__")
    rooms = files | folders
    upward, circles = _upward(rooms, arrows)
    return Package(name, frozenset(files), folders, arrows, upward, _floors(rooms, arrows.keys() - upward), circles)


def _upward(rooms: Iterable[str], arrows: Mapping[Arrow, int]) -> tuple[frozenset[Arrow], list[list[str]]]:
    """Return the arrows to leave out so that no circle remains, and the circles in which they were found."""
    upward: set[Arrow] = set()
    circles = []
    while True:
        try:
            TopologicalSorter(_targets(rooms, arrows.keys() - upward)).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            # The sorter names a circle against the direction of its arrows.
            upward.add(min(zip(circle[1:], circle, strict=False), key=lambda arrow: (arrows[arrow], arrow)))
            circles.append(sorted(set(circle)))
        else:
            return frozenset(upward), circles


def _floors(rooms: Iterable[str], arrows: Iterable[Arrow]) -> list[list[str]]:
    sorter = TopologicalSorter(_targets(rooms, arrows))
    sorter.prepare()
    floors = []
    while ready := sorter.get_ready():
        floors.append(sorted(ready))
        sorter.done(*ready)
    return floors


def _targets(rooms: Iterable[str], arrows: Iterable[Arrow]) -> dict[str, set[str]]:
    targets: dict[str, set[str]] = {room: set() for room in rooms}
    for source, target in arrows:
        targets[source].add(target)
    return targets


def _parents(module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def _room(module: str, package: str) -> str:
    return module.removeprefix(f"{package}.").partition(".")[0]


def _within(module: str, package: str) -> bool:
    return module.startswith(f"{package}.")


if __name__ == "__main__":
    sys.exit(main())
