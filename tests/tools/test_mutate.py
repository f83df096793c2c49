"""What `make mutate` makes of mutmut's results: which mutants count as killed, and which survivors are known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mutate
import mutation_results
import mutmut_safely
from cases import cases
from mutation_results import Mutant
from waiting import WAIT_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
NAME = "fluss_tiering.server.core.leases.manager.xǁLeasesǁdrop__mutmut_3"


def mutant(status: str, removed: str = "a < b", added: str = "a <= b") -> Mutant:
    return Mutant(NAME, mutation_results.function_name(NAME), removed, added, status)


@cases(
    ("name", "function"),
    [
        (NAME, "fluss_tiering.server.core.leases.manager.Leases.drop"),
        ("fluss_tiering.lake.x__parse__mutmut_12", "fluss_tiering.lake._parse"),
        ("fluss_tiering.lake.x_xml__mutmut_1", "fluss_tiering.lake.xml"),
        ("fluss_tiering.lake.xǁPlanǁ__init____mutmut_1", "fluss_tiering.lake.Plan.__init__"),
    ],
)
def test_a_mutant_tells_its_function(name, function):
    assert mutation_results.function_name(name) == function


def test_the_changed_lines_of_a_diff():
    diff = "--- a.py\n+++ a.py\n@@ -1,3 +1,3 @@\n def f():\n-    return [\n-        -1]\n+    return None\n"
    assert mutation_results.changed_lines(diff) == ("return [\n-1]", "return None")


@pytest.mark.parametrize(
    ("alive", "reasons", "code", "said"),
    [
        (0, {}, 0, "100.0 % of 20 mutants were killed"),
        (1, {mutant("").key: "why"}, 0, "95.0 % of 20 mutants were killed"),
        (1, {}, 1, "survived: " + NAME),
        (0, {mutant("").key: "why"}, 1, "no longer survives"),
        (3, {mutant("").key: "why"}, 1, "85.0 %"),
    ],
)
def test_a_report_is_good_if_enough_die_and_all_survivors_are_known(alive, reasons, code, said, capsys):
    mutants = [mutant("survived")] * alive + [mutant("killed")] * (18 - alive) + [mutant("timeout"), mutant("crashed")]
    assert mutation_results.report("server/core/leases", mutants, reasons) == code
    assert said in capsys.readouterr().out


def test_mutants_that_were_not_tried_count_for_nothing(capsys):
    mutants = [mutant("killed")] * 9 + [mutant("")] + [mutant("untried", "c")] * 90
    untried = mutant("untried", "c").key
    assert mutation_results.report("server/core/leases", mutants, {mutant("").key: "why", untried: "why"}) == 0
    said = capsys.readouterr().out
    assert "90.0 % of 10 mutants were killed" in said
    assert "90 mutants were not tried" in said
    assert "server.core.leases.manager: 9 of 10 killed, 100 in all" in said


def test_mutants_of_a_function_that_is_left_out_count_for_nothing(capsys):
    mutants = [mutant("killed"), mutant("untested", "c")]
    for without in (mutant("").function, mutant("").function.rpartition(".")[0] + ".*"):
        assert mutation_results.report("server/core/leases", mutants, {}, {without}) == 1
    assert "0 mutants were killed, 0 of them" in capsys.readouterr().out
    text = '[[left-out]]\nfunction = "server.core.leases.a.f"\nreason = "why"\n'
    assert mutation_results.left_out(text, "server/core/leases") == {"fluss_tiering.server.core.leases.a.f": "why"}
    assert mutation_results.left_out(text, "server/core/scans") == {}


def test_only_the_chosen_mutants_are_shown_and_judged(capsys):
    other = Mutant(NAME.replace("_3", "_33"), "f", "c", "d", "untried")
    chosen = mutation_results.named([mutant("killed"), other], ["*drop__mutmut_3"])
    assert mutation_results.report_chosen(chosen, {}) == 0
    assert capsys.readouterr().out == f"killed: {NAME}\n1 of 1 chosen mutants were killed, 0 are accepted survivors\n"
    assert mutation_results.report_chosen([mutant("survived")], {}) == 1
    assert "a <= b" in capsys.readouterr().out
    assert mutation_results.report_chosen([mutant("survived")], {mutant("").key: "why"}) == 0
    assert "1 are accepted survivors" in capsys.readouterr().out
    assert mutation_results.report_chosen([other], {}) == 1, "it was not tried"
    assert mutation_results.named([mutant("killed"), other], ["x", "*mutmut_33"]) == [other]


@pytest.mark.parametrize(
    ("given", "said"), [([], "No package is named"), (["server"], "server is none of the packages")]
)
def test_without_a_package_the_packages_are_listed(given, said, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["mutate.py", *given])
    assert mutate.main() == 2
    message = capsys.readouterr().err
    assert message.startswith(said)
    assert all(package in message for package in mutate.TESTS)


def test_a_sample_is_the_same_for_each_seed_and_does_not_depend_on_other_mutants():
    names = [f"module.x_f__mutmut_{number}" for number in range(2000)]
    some = mutate.sampled(names, 25, "1")
    assert 400 < len(some) < 600
    assert mutate.sampled(names[::2], 25, "1") == [name for name in some if name in names[::2]]
    assert mutate.sampled(names, 25, "2") != some
    assert set(some) < set(mutate.sampled(names, 50, "1"))
    assert mutate.sampled(names, 100, "1") == names


def test_a_sample_tries_no_mutant_twice(project):
    _, copy, _ = project
    assert mutate.untried(copy, ["killed", "alive", "new"]) == ["new"]


@pytest.mark.slow
def test_the_names_of_mutants_are_those_of_mutmut(project):
    root, copy, _ = project
    (root / "engine/fluss_tiering/server/core/leases/manager.py").write_text("def least(a, b):\n    return a < b\n")
    mutate.prepare(root, copy, "server/core/leases")
    names = list(mutate.mutant_names(copy, "server/core/leases"))
    assert names[0] == "fluss_tiering.server.core.leases.manager.x_least__mutmut_1"
    assert all(name.startswith("fluss_tiering.server.core.leases.manager.x_least__mutmut_") for name in names)


def test_every_entry_of_the_list_has_a_reason_and_a_function_of_a_package_that_is_tried():
    entries = tomllib.loads(mutation_results.ACCEPTED.read_text()).get("survivor", [])
    found = [mutation_results.accepted(mutation_results.ACCEPTED.read_text(), package) for package in mutate.TESTS]
    assert sum(map(len, found)) == len(entries), "two entries are equal, or one is of another package"
    without = [mutation_results.left_out(mutation_results.ACCEPTED.read_text(), package) for package in mutate.TESTS]
    assert all(len(reason.split()) > 3 for reasons in [*found, *without] for reason in reasons.values())
    for function in (function for functions in without for function in functions):
        module, _, name = function.rpartition(".")
        text = (ROOT / "engine" / f"{module.replace('.', '/')}.py").read_text()
        assert name == "*" or f"def {name}(" in text


@cases("package", mutate.TESTS)
def test_packages_and_their_tests_exist(package):
    assert (ROOT / "engine" / "fluss_tiering" / package).is_dir()
    for path in [*mutate.TESTS[package], *mutate.LEFT_OUT]:
        file, _, test = path.partition("::")
        assert (ROOT / file).exists()
        assert not test or f"def {test}(" in (ROOT / file).read_text()


@pytest.fixture
def project(tmp_path):
    """A small repository with a package, a test and settings, and the copy of it."""
    root, copy = tmp_path / "root", tmp_path / "copy"
    for path, text in {
        "engine/fluss_tiering/server/core/leases/manager.py": "x = 1\n",
        "engine/fluss_tiering/other.py": "y = 1\n",
        "tests/test_it.py": "def test_it(): ...\n",
        "tools/tool.py": "",
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    copy.mkdir()
    mutate.prepare(root, copy, "server/core/leases")
    meta = copy / "mutants" / "fluss_tiering" / "server" / "core" / "leases" / "manager.py.meta"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"exit_code_by_key": {"killed": 1, "slow": 36, "alive": 0, "untested": 33}}))
    return root, copy, meta


def verdicts(meta: Path) -> dict[str, int | None]:
    return json.loads(meta.read_text())["exit_code_by_key"]


def test_the_repository_itself_is_not_touched(project):
    root, copy, _ = project
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    (copy / "fluss_tiering" / "other.py").write_text("broken")
    mutate.prepare(root, copy, "server/core/leases")
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert (copy / "fluss_tiering" / "other.py").read_text() == "y = 1\n"


def test_without_a_change_all_verdicts_stand(project):
    root, copy, meta = project
    mutate.prepare(root, copy, "server/core/leases")
    assert verdicts(meta) == {"killed": 1, "slow": 36, "alive": 0, "untested": 33}


@pytest.mark.parametrize("changed", ["tests/test_it.py", "tests/test_new.py", "engine/fluss_tiering/other.py"])
def test_after_a_change_survivors_are_tried_again(project, changed):
    root, copy, meta = project
    (root / changed).write_text("z = 1\n")
    mutate.prepare(root, copy, "server/core/leases")
    assert verdicts(meta) == {"killed": 1, "slow": 36, "alive": None, "untested": None}


def test_what_was_deleted_is_gone_in_the_copy(project):
    root, copy, _ = project
    mirrored = copy / "mutants" / "tests" / "test_it.py"
    mirrored.parent.mkdir(parents=True)
    mirrored.write_text("")
    (root / "tests" / "test_it.py").unlink()
    mutate.prepare(root, copy, "server/core/leases")
    assert not (copy / "tests" / "test_it.py").exists()
    assert not mirrored.exists()


def test_another_choice_of_mutants_or_tests_begins_anew(project, monkeypatch):
    root, copy, meta = project
    monkeypatch.setitem(mutate.TESTS, "server/core/leases", ["tests/other"])
    mutate.prepare(root, copy, "server/core/leases")
    assert not meta.exists()
    assert "tests/other" in (copy / "pyproject.toml").read_text()


@pytest.fixture
def child():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as running:
        yield running
        running.kill()


@pytest.mark.system
def test_a_mutant_that_takes_too_long_is_ended(child):
    mutmut_safely.register_timeout(child.pid, 0.01)
    assert child.wait(WAIT_S) == -signal.SIGXCPU


@pytest.mark.system
def test_a_program_that_got_the_id_of_a_mutant_that_has_ended_is_left_alone(child, monkeypatch):
    """A mutant's time limit comes long after its end. By then another program, or a thread, may have its id."""
    asked: list[int] = []
    began = mutmut_safely.began_at

    def first_of_a_mutant(pid: int) -> str | None:
        asked.append(pid)
        return "1" if len(asked) == 1 else began(pid)

    monkeypatch.setattr(mutmut_safely, "began_at", first_of_a_mutant)
    mutmut_safely.register_timeout(child.pid, 0.01)
    wait_until(lambda: len(asked) == 2)
    assert child.poll() is None


@pytest.mark.system
def test_only_children_are_known_by_their_ids(child):
    assert mutmut_safely.began_at(child.pid) is not None
    assert mutmut_safely.began_at(os.getppid()) is None
    child.kill()
    child.wait()
    assert mutmut_safely.began_at(child.pid) is None
