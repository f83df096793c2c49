"""Programs that need the same jars at once fetch them once, and each finds them whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fetch_test_servers

TOOLS = Path(fetch_test_servers.__file__).parent
# Waits until both programs have begun, so that without the lock both would fetch.
COPIES = """\
while [ "$1" != --file ]; do shift; done
folder=$(sed -n 's|.*<outputDirectory>\\(.*\\)</outputDirectory>.*|\\1|p' $2)
for i in $(seq 300); do [ $(ls {begun} | wc -l) = 2 ] && break; sleep 0.1; done
sleep 1
mkdir -p $folder
echo jar >$folder/one-1.0.jar
"""
FETCHES = """\
import sys
from pathlib import Path
from maven import fetch_folder
begun, target = map(Path, sys.argv[1:3])
(begun / sys.argv[3]).touch()
fetch_folder(target, ["org.example:one:1.0"], what="the jar of a test")
assert (target / "one-1.0.jar").read_text() == "jar\\n"
"""


@pytest.mark.system
@pytest.mark.slow
def test_two_programs_fetch_one_folder_once(tmp_path, monkeypatch):
    begun, target = tmp_path / "begun", tmp_path / "servers" / "one"
    begun.mkdir()
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho called >>{tmp_path}/calls\n{COPIES.replace('{begun}', str(begun))}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(TOOLS))
    command = [sys.executable, "-c", FETCHES, str(begun), str(target)]
    programs = [subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in ("first", "second")]
    ended = [(each.communicate()[1], each.returncode) for each in programs]
    assert [code for _, code in ended] == [0, 0], ended
    assert (tmp_path / "calls").read_text().splitlines() == ["called"]
    assert list(target.parent.iterdir()) == [target]
