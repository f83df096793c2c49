"""`make test-platforms`: the whole job on each catalog and store, and the page that says what was seen."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fetch_spark_jars import jars
from fetch_test_servers import fetch_jar
from markdown_text import table
from platforms.catalogs import CATALOGS
from platforms.clusters import CLUSTERS, Cluster, tried
from platforms.running import Platform, Running
from platforms.stores import STORES

PLATFORMS: Final = (*CATALOGS, *STORES)
ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "reference" / "platforms.md"
_SECRET: Final = re.compile(r"(password|secret|key|token|credential)$")
_NAMED_ANEW: Final = {
    r"/tmp/fluss-[\w-]+": "/FOLDER",
    r"127\.0\.0\.1:(?!9/?\b)\d+": "HOST:PORT",
    r"cwd=[^)]+": "cwd=/FOLDER",
    r"expires-at=\d+": "expires-at=MILLISECONDS",
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "UUID",
}
"""What each run calls otherwise -> what the page calls it."""
_KINDS: Final = ("position deletes", "deletion vectors", "log table")
_STEPS: Final = (
    *("rounds", "verify", "compact", "expire", "clean", "maintain"),
    *("two drivers", "compaction beside rounds", "killed in mid-round"),
)
_INTRODUCTION: Final = """# Platforms

This page is made by `make test-platforms`, which starts each catalog or store from a public registry on one machine,
without Docker, and runs the whole job on it. `make test-platforms ARGS="--only nessie"` repeats one of them.

The steps run on a primary-key table with position deletes, on one with deletion vectors, and on a log table: a first
round, a round after upserts and deletes, `verify`, `compact`, a further round and `expire`, `clean`, and `maintain`. On
the first table two applications then tier at the same time, a compaction runs beside rounds, and the platform is killed
in mid-round and started again. After each step Spark's own reader of Iceberg reads the rows, which are compared with
those that were written. At last each setting that one gets wrong is set wrongly: the round must fail with one line, the
table must be `Failed`, and no snapshot may stay leased. The seconds are of two cores that did other work, too.

Emulators stand in for AWS Glue, Azure and Google Cloud. The real services were not tried.
Gravitino, Unity Catalog and Lakekeeper have no program in a public registry that starts without Docker, and were not
tried. Nor was Polaris, of which only a library is there, whose parent project could not be fetched to build it. Nor was
MySQL, because no public registry has its server: MariaDB stands in for it. For Kubernetes see [what was tried without a
cluster](../how-to/kubernetes.md), for versions of Spark [compatibility](compatibility.md).

"""

_WHERE_SPARK_RUNS: Final = """
## Where Spark runs

Here the lake is a folder of one machine, and the cluster is what changes. The workers' Python has the requirements
but not the package. A round takes 100,000 upserts while the process of an executor, of the application master, or the
whole application is killed. A lost process must not fail the round. After `yarn application -kill` nothing may stay
leased, and the next round tiers. Each time pyiceberg reads the rows, which are compared with those that were written.

YARN kills a driver in cluster mode a quarter of a second after it has asked it to end. What the driver could not tell
the server, the server finds out after its `heartbeat-timeout` of two minutes. The driver's lease expires by itself, 30
minutes after it was last renewed. Here it lasts a minute (`--lease-duration-ms`).

That YARN ends executors over their memory was not seen, because the small cluster of Hadoop's tests, which was started
here, did not enforce its limit. Workers with other versions of Python were tried on one machine: before it reads a
row, a round says which `PYSPARK_PYTHON` to set.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a platform.

    Attributes:
        version: The version of the platform.
        properties: The properties of the lake catalog.
        jars: What Spark needs.
        environment: The environment variables.
        seconds: How long all of it took.
        steps: What each step told, as the job prints it.
    """

    version: str
    properties: dict[str, str]
    jars: list[str]
    environment: dict[str, str]
    seconds: float
    steps: list[dict[str, Any]]

    def failed(self, platform: Platform | Cluster) -> list[str]:
        """Return the steps that failed although they should work."""
        return [
            f"{platform.name}, {each['kind']}, {each['step']}: {each['told']}"
            for each in self.steps
            if not _is_right(platform, each)
        ]


def run(platform: Platform) -> Result:
    """Start a platform, and run the job on it in a process of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"fluss-{platform.name}-") as name, platform.run(Path(name)) as running:
        steps = _steps(running, platform)
    seconds = time.monotonic() - began
    return Result(running.version, running.properties, list(running.jars), dict(running.environment), seconds, steps)


def run_on(cluster: Cluster) -> Result:
    """Start a cluster of Spark, and let applications tier on it."""
    began = time.monotonic()
    steps = []
    with tempfile.TemporaryDirectory(prefix=f"fluss-{cluster.name}-") as name:
        for told in tried(cluster, Path(name)):
            steps.append(told)
            _say(cluster, told)
    return Result(cluster.version, {}, [], {}, time.monotonic() - began, steps)


def _steps(running: Running, platform: Platform) -> list[dict[str, Any]]:
    own = [str(fetch_jar(each)) for each in running.jars]
    asked = {
        "properties": running.properties,
        "jars": [*map(str, jars()), *own],
        "own jars": own,
        "wrong": running.wrong,
        "options": platform.options,
        "leaves out": list(platform.leaves_out),
        "may be killed": running.stop is not None,
    }
    path = [str(ROOT / each) for each in ("verification", "tests", "tools", ".")]
    environment = {**os.environ, **running.environment, "PYTHONPATH": os.pathsep.join(path)}
    steps = []
    with (
        tempfile.TemporaryFile() as messages,
        subprocess.Popen(
            [sys.executable, "-m", "platforms.job"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            env=environment,
        ) as job,
    ):
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdin.write(json.dumps(asked) + "\n")
        job.stdin.flush()
        for line in job.stdout:
            if not line.startswith("{"):
                continue
            told = json.loads(line)
            if asks := told.get("ask"):
                getattr(running, asks)()
                job.stdin.write("done\n")
                job.stdin.flush()
                continue
            steps.append(told)
            _say(platform, told)
        if job.wait() != 0:
            messages.seek(0)
            last = messages.read().decode(errors="replace").strip().splitlines()[-1:]
            steps.append({"kind": "position deletes", "step": "rounds", "told": f"the job ended: {last}"})
    return steps


def _say(platform: Platform | Cluster, told: Mapping[str, Any]) -> None:
    came = "as it should" if _is_right(platform, told) else told["told"]
    sys.stdout.write(f"{platform.name}, {told['kind']}, {told['step']}: {told['seconds']:.1f} s, {came}\n")
    sys.stdout.flush()


def page(results: Mapping[str, Result], before: str) -> str:
    """Return the page about platforms with the results of a run. The others stay as the page has them."""
    rows, sections = [], []
    for platform in PLATFORMS:
        if result := results.get(platform.name):
            rows.append(
                table((platform.title, *(_cell(platform, result, step) for step in _STEPS)), ()).splitlines()[1]
            )
            sections.append(_section(platform, result))
        else:
            rows.append(_kept(rf"\| {re.escape(platform.title)} \|.*", before))
            sections.append(_kept_section(platform, before))
    sections.append(_WHERE_SPARK_RUNS)
    for cluster in CLUSTERS:
        result = results.get(cluster.name)
        sections.append(_section_of_cluster(cluster, result) if result else _kept_section(cluster, before))
    table_of_all = table(("Platform", *_STEPS), ()) + "".join(f"{row}\n" for row in rows if row)
    text = "".join((_INTRODUCTION, table_of_all, *sections))
    for pattern, name in _NAMED_ANEW.items():
        text = re.sub(pattern, name, text)
    return text


def _kept_section(platform: Platform | Cluster, before: str) -> str:
    section = _kept(rf"##+ {re.escape(platform.title)}\n(?s:.*?)(?=^##|\Z)", before)
    return f"\n{section}\n" if section else ""


def _kept(pattern: str, before: str) -> str:
    found = re.search(rf"^{pattern}", before, re.MULTILINE)
    return found[0].rstrip() if found else ""


def _cell(platform: Platform, result: Result, step: str) -> str:
    found = [each for each in result.steps if each["step"] == step and each["kind"] in _KINDS]
    if step in platform.leaves_out:
        return "no"
    if not found:
        return "not tried"
    if step in platform.refuses:
        return "below"
    return "yes" if all(each["told"] is None for each in found) else "**no**"


def _section(platform: Platform, result: Result) -> str:
    lines = [f"\n## {platform.title}\n\nTried: {result.version}. All of it took {result.seconds:.0f} s.\n\n"]
    lines += [f"- `{key}={'…' if _is_secret(key) else value}`\n" for key, value in result.properties.items()]
    lines += [f"- In Spark's jars: `{each}`\n" for each in result.jars]
    lines += [
        f"- In the environment of driver and executors: `{key}={'…' if _is_secret(key) else value}`\n"
        for key, value in result.environment.items()
    ]
    lines += [f"- Option of each table: `{key}={value}`\n" for key, value in platform.options.items()]
    by_reason: dict[str, list[str]] = {}
    for step, why in [*platform.refuses.items(), *platform.leaves_out.items()]:
        by_reason.setdefault(why, []).append(step)
    lines += [f"\n{', '.join(steps).capitalize()}: {why}.\n" for why, steps in by_reason.items()]
    if platform.note:
        lines.append(f"\n{platform.note}\n")
    wrong = [each for each in result.steps if each["kind"] == "wrong"]
    if wrong:
        rows = ((each["step"], f"{each['seconds']:.0f} s", f"`{each['told']}`") for each in wrong)
        lines += ["\n", table(("Wrong", "Told after", "last_error"), rows)]
    lines += [f"\n**Failed:** {each}\n" for each in result.failed(platform)]
    return "".join(lines)


def _seen(step: Mapping[str, Any]) -> str:
    if step["told"] is not None:
        return "**failed**"
    return "each row once" if step["saw"] is None else f"refused: `{step['saw']}`"


def _section_of_cluster(cluster: Cluster, result: Result) -> str:
    rows = ((each["kind"], each["step"], f"{each['seconds']:.0f} s", _seen(each)) for each in result.steps)
    lines = [f"\n### {cluster.title}\n\n{result.version}. All of it took {result.seconds:.0f} s.\n\n"]
    lines += ["".join(f"    {line}".rstrip() + "\n" for line in cluster.command.splitlines()), "\n"]
    lines += [table(("Deploy mode", "Done", "Took", "Seen"), rows)]
    lines += [f"\n**Failed:** {each}\n" for each in result.failed(cluster)]
    return "".join(lines)


def _is_right(platform: Platform | Cluster, told: Mapping[str, Any]) -> bool:
    if told["kind"] == "wrong":
        return bool(told["right"])
    return told["told"] is None or (isinstance(platform, Platform) and told["step"] in platform.refuses)


def _is_secret(key: str) -> bool:
    return _SECRET.search(key.lower()) is not None


def main() -> int:
    """Run the job on all platforms, write the page, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [each.name for each in (*PLATFORMS, *CLUSTERS)]
    parser.add_argument("--only", action="append", choices=names, help="Run only this platform.")
    only = parser.parse_args().only
    # The emulators of S3 do not know the checksums that Amazon's library sends by default.
    os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"
    failed: list[str] = []
    for platform in (*PLATFORMS, *CLUSTERS):
        if only is not None and platform.name not in only:
            continue
        try:
            result = run(platform) if isinstance(platform, Platform) else run_on(platform)
        except (OSError, RuntimeError, subprocess.SubprocessError, SystemExit) as error:
            failed.append(f"{platform.name} was not started: {error}")
            sys.stdout.write(f"{failed[-1]}\n")
            continue
        failed += result.failed(platform)
        PAGE.write_text(page({platform.name: result}, PAGE.read_text()))
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} was written; {len(failed)} steps failed.\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
