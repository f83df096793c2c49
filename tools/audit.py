"""Look for known vulnerabilities of the pinned distributions, with pip-audit. `make audit` runs this.

pip-audit asks a service on the network, PyPI by default. It ends well when the service does not know a distribution, or
knows none at all. Here that is a failure: nobody has looked then.

The exit status is 1 if some pins have known vulnerabilities. Otherwise it is 0 if all were looked at, and 2 if not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pins import Pin, read_pins

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "audit"
_SHOWN = 5
_SERVICE = "--vulnerability-service"


@dataclass
class Findings:
    """What an audit found.

    Attributes:
        vulnerable: A line for each known vulnerability.
        unknown: The pins that the service does not know, as NAME==VERSION.
        audited: The number of pins that were looked at.
    """

    vulnerable: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    audited: int = 0


class AuditError(Exception):
    """pip-audit could not do its work."""


def audit(pins: Sequence[Pin], arguments: Sequence[str]) -> Findings:
    """Ask for the vulnerabilities of each pin, also of those that are for another Python or platform.

    Args:
        pins: What is installed.
        arguments: Further arguments for pip-audit.

    Raises:
        AuditError: pip-audit failed, for example because the network is not there.
    """
    findings = Findings()
    # pip-audit takes each name once in a file, and skips pins whose markers are not those of this machine.
    for some in _of_different_names(pins):
        for dependency in _ask(some, arguments):
            pin = next(each for each in some if each.name == dependency["name"])
            what = f"{pin.name}=={pin.version}"
            if "skip_reason" in dependency:
                findings.unknown.append(what)
                continue
            findings.audited += 1
            findings.vulnerable += [_line(what, each) for each in dependency["vulns"]]
    return findings


def _of_different_names(pins: Iterable[Pin]) -> Iterator[list[Pin]]:
    left = list(pins)
    while left:
        first: dict[str, Pin] = {}
        for pin in left:
            first.setdefault(pin.name, pin)
        yield list(first.values())
        left = [pin for pin in left if first[pin.name] is not pin]


def _ask(pins: Sequence[Pin], arguments: Sequence[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file, answer = Path(folder, "pins.txt"), Path(folder, "answer.json")
        file.write_text("".join(f"{pin.name}=={pin.version}\n" for pin in pins))
        command = [
            *(sys.executable, "-m", "pip_audit", "--requirement", str(file), "--no-deps", "--disable-pip"),
            *("--progress-spinner", "off", "--cache-dir", str(CACHE), "--format", "json", "--output", str(answer)),
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # The status is 1 for vulnerabilities and for failures; only the former come with an answer.
        if not answer.exists():
            *_, why = done.stderr.strip().splitlines() or ["it said nothing"]
            raise AuditError(f"pip-audit failed: {why}")
        found: list[dict[str, Any]] = json.loads(answer.read_text())["dependencies"]
        return found


def _line(what: str, vulnerability: dict[str, Any]) -> str:
    names = ", ".join([vulnerability["id"], *vulnerability.get("aliases", [])])
    fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
    return f"{what}: {names}; fixed in {fixed}"


def main() -> int:
    """Print what was found; the exit status sums it up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pins", type=Path, default=ROOT / "constraints.txt", help="another file of pins")
    known, further = parser.parse_known_args()
    pins = read_pins(known.pins)
    try:
        findings = audit(pins, further)
    except AuditError as error:
        print(f"error: not audited: {error}; this needs the network", file=sys.stderr)
        return 2
    print(*findings.vulnerable, sep="\n", end="\n" if findings.vulnerable else "")
    if findings.unknown:
        more = "" if len(findings.unknown) <= _SHOWN else ", ..."
        print(
            f"error: {len(findings.unknown)} of {len(pins)} pins were not audited, since the service does not know "
            f"them: {', '.join(findings.unknown[:_SHOWN])}{more}. "
            + ("" if any(_SERVICE in each for each in further) else f'Try another one: ARGS="{_SERVICE} osv"'),
            file=sys.stderr,
        )
    print(f"{findings.audited} of {len(pins)} pins audited, {len(findings.vulnerable)} known vulnerabilities")
    if findings.vulnerable:
        return 1
    return 2 if findings.unknown else 0


if __name__ == "__main__":
    sys.exit(main())
