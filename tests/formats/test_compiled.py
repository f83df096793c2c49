import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fluss_tiering.formats import compiled

KERNEL = """
from fluss_tiering.formats.compiled import INT64, INT64_IN, compiled

@compiled(INT64_IN, result=INT64)
def total(values):
    result = 0
    for i in range(values.size):
        result += values[i]
    return result
"""
SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import kernel
assert "numba" not in sys.modules, "what is not compiled yet need not wait for it"
import numpy as np
odd_address = np.frombuffer(b"?" + np.arange(5).tobytes(), np.int64, offset=1)
assert kernel.total(odd_address) == 10
assert kernel.__file__.startswith(sys.argv[1])
"""
FILES = {
    "fluss_tiering/__init__.py": "",
    "fluss_tiering/formats/__init__.py": "",
    "fluss_tiering/formats/compiled.py": Path(compiled.__file__).read_text(),
    "kernel.py": KERNEL,
}


def run(install: Path, home: Path) -> dict[Path, int]:
    """Call a compiled function of an installation in a new process, and return the cache files with their times."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(install)], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    root = home if home.is_dir() else home.parent
    return {path: path.stat().st_mtime_ns for path in root.rglob("*.nb?")}


def folder(root: Path) -> Path:
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.system
def test_what_was_compiled_is_kept_beside_the_source(tmp_path: Path) -> None:
    install = folder(tmp_path / "install")
    written = run(install, tmp_path)
    assert {path.parent for path in written} == {install / "__pycache__"}
    assert run(install, tmp_path) == written


@pytest.mark.system
def test_a_read_only_install_keeps_it_for_the_user(tmp_path: Path) -> None:
    install = folder(tmp_path / "install")
    (install / "__pycache__").touch()  # a file in this place stops root, too, whom permissions do not stop
    home = tmp_path / "home"
    home.mkdir()
    written = run(install, home)
    assert len(written) == 2
    assert run(install, home) == written


@pytest.mark.system
def test_without_a_place_for_a_cache_it_is_compiled_again(tmp_path: Path) -> None:
    install = folder(tmp_path / "install")
    (install / "__pycache__").touch()
    no_home = tmp_path / "file"
    no_home.touch()
    assert run(install, no_home) == {}


@pytest.mark.system
def test_an_archive_is_compiled_again_and_leaves_nothing_behind(tmp_path: Path) -> None:
    archive = tmp_path / "shipped.zip"
    with zipfile.ZipFile(archive, "w") as shipped:
        for name, text in FILES.items():
            shipped.writestr(name, text)
    assert run(archive, tmp_path) == {}


def test_threads_may_call_at_once() -> None:
    @compiled.compiled(compiled.INT64, result=compiled.INT64)
    def successor(number: int) -> int:
        return number + 1

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(successor, np.arange(100))) == list(range(1, 101))
