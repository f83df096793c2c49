"""Say what to install if Python or Java is missing or has the wrong version. `make setup` runs this first.

This program runs with any `python3` from 3.7 on, before anything is installed. It uses the standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PYTHON_VERSIONS = ((3, 11), (3, 12), (3, 13))
JAVA_VERSIONS = (17, 21)
JAVA_WANTED = (
    f"Spark needs a JDK of Java {' or '.join(map(str, JAVA_VERSIONS))}: install it (Debian, Ubuntu: apt-get install "
    "openjdk-17-jdk-headless; macOS: brew install openjdk@17)"
)


def java_problem() -> str | None:
    """Return what is wrong with Java, or None."""
    home = os.environ.get("JAVA_HOME")
    # javac compiles the catalog that Spark's JVM loads.
    for program in ("javac", "java"):
        path = str(Path(home, "bin", program)) if home else shutil.which(program)
        if not path or not Path(path).exists():
            where = f"JAVA_HOME={home} has no bin/{program}" if home else f"There is no `{program}` on PATH"
            return f"{where}. {JAVA_WANTED}, or set JAVA_HOME to it."
    return version_problem(str(path))


def version_problem(java: str) -> str | None:
    """Return what is wrong with the version of this `java`, or None."""
    try:
        answer = subprocess.run(
            [java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java} does not run ({error}). {JAVA_WANTED}."
    text = answer.stdout.decode(errors="replace")
    found = re.search(r'version "(\d+)', text)
    if not found:
        return f"`{java} -version` said {text.strip()[:200]!r}, which names no version. {JAVA_WANTED}."
    if int(found.group(1)) not in JAVA_VERSIONS:
        return f"{java} is Java {found.group(1)}. {JAVA_WANTED}, and set JAVA_HOME to it."
    return None


def python_problem() -> str | None:
    """Return what is wrong with Python, or None."""
    if sys.version_info[:2] in PYTHON_VERSIONS:
        return None
    return (
        f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}. Python 3.11, 3.12 or 3.13 is needed: "
        "install one and run `make PYTHON=/path/to/python3.11 ...`."
    )


def main() -> None:
    """Print each problem, and exit with code 1 if there is one."""
    problems = [problem for problem in (python_problem(), java_problem()) if problem]
    for problem in problems:
        sys.stderr.write(f"error: {problem}\n")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
