"""The script that names circles of imports and too large folders, and the page about versions of Fluss."""

from __future__ import annotations

from pathlib import Path

import pytest

import fluss_versions
import house

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path):
    """Write modules of `fluss_tiering`, and survey them; the packages by their names."""
    (tmp_path / "airflow_provider_fluss").mkdir()

    def make(**modules: str) -> dict[str, house.Package]:
        for name, text in modules.items():
            path = tmp_path.joinpath("engine", "fluss_tiering", *name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return {package.name.removeprefix("fluss_tiering").lstrip("."): package for package in house.survey(tmp_path)}

    return make


@pytest.mark.slow
def test_the_code_has_no_circle_and_no_large_folder():
    assert [problem for package in house.survey(ROOT) for problem in package.problems] == []


@pytest.mark.slow
def test_every_folder_of_the_code_is_looked_at():
    engine = ROOT / "engine"
    folders = {path.parent for path in (engine / "fluss_tiering").rglob("*.py")}
    names = {".".join(folder.relative_to(engine).parts) for folder in folders}
    surveyed = {package.name for package in house.survey(ROOT)}
    assert {name for name in names - surveyed if not name.startswith("fluss_tiering.api")} == set()


def test_arrows_lead_between_the_rooms_of_a_package(project):
    packages = project(
        model__table="from fluss_tiering.model import clock",
        model__clock="import time",
        server__app="from fluss_tiering.model.table import Table, Column\nimport fluss_tiering.server.logs",
        server__logs="def later():\n    from ..model.clock import Clock",
    )
    assert packages[""].arrows == {("server", "model"): 3}
    assert packages["server"].arrows == {("app", "logs"): 1}
    assert packages["model"].arrows == {("table", "clock"): 1}
    assert (packages[""].rooms, packages["server"].rooms) == (2, 2)


def test_a_room_stands_above_all_that_it_imports(project):
    package = project(
        server__a="from fluss_tiering.server import b, c", server__b="from fluss_tiering.server import c", server__c=""
    )["server"]
    assert package.floors == [["c"], ["b"], ["a"]]
    assert not package.upward
    assert list(package.problems) == []


def test_a_circle_is_found_and_its_thinnest_arrow_leads_upward(project):
    packages = project(
        server__x="from fluss_tiering.storage.y import one, two",
        storage__y="",
        storage__z="from fluss_tiering.server.x import one",
    )
    assert packages[""].upward == {("storage", "server")}
    assert list(packages[""].problems) == ["fluss_tiering: a circle of imports: server, storage"]


def test_generated_code_is_no_room(project):
    packages = project(__init__="", api__v1="", wire__tables="from fluss_tiering.api import v1")
    assert set(packages) == {"", "wire"}
    assert packages[""].arrows == {}


def test_a_folder_with_more_than_16_files_beside_its_sub_folders_is_told(project):
    files = {f"server__m{number}": "" for number in range(16)}
    assert list(project(**files, server__rpc__listener="")["server"].problems) == []
    (problem,) = project(server__one_more="")["server"].problems
    assert problem.startswith("fluss_tiering.server: 17 files")


def test_the_table_has_a_line_for_each_package_and_one_for_all(project):
    packages = list(project(server__a="from fluss_tiering.server import b", server__b="").values())
    heading, *lines, total = house.table(packages).splitlines()
    assert heading.split()[:3] == ["package", "files", "folders"]
    assert [line.split()[0] for line in lines] == ["fluss_tiering", "fluss_tiering.server"]
    assert total.split()[-7:] == ["2", "1", "2", "1", "2", "0", "0"]


RESULTS = """<testsuites><testsuite>
<testcase classname="tests.spark.round.test_merge_engines" name="test_a[fluss-0.9.1-x]"/>
<testcase classname="tests.spark.round.test_merge_engines" name="test_a[fluss-1.0-x]"/>
<testcase classname="tests.spark.round.test_merge_engines" name="test_b[fluss-1.0]"><failure message="no"/></testcase>
<testcase classname="tests.storage.fluss.reading.test_fluss_reader" name="test_c[fluss-1.0]"/>
<testcase classname="tests.storage.fluss.reading.test_fluss_reader" name="test_d[fluss-1.0]"><skipped/></testcase>
<testcase classname="tests.model.test_clock" name="test_e"/>
</testsuite></testsuites>"""


def line(page: str, feature: str) -> list[str]:
    (found,) = [each for each in page.splitlines() if each.startswith(f"| {feature} |")]
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def test_a_feature_works_if_all_of_its_tests_passed(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(RESULTS)
    page = fluss_versions.page(fluss_versions.read([tmp_path / "a.xml"]))
    assert line(page, "Merge engines and numbered columns") == ["1", "**no**: test_b[fluss-1.0]"]
    assert line(page, "Logs are read from leaders and from the remote folder") == ["not run", "1"]
    assert line(page, "Leaders scan their buckets in sessions") == ["not in Fluss 0.9.1", "not run"]
    # The last result of a test counts.
    (tmp_path / "b.xml").write_text(RESULTS.replace('<failure message="no"/>', ""))
    page = fluss_versions.page(fluss_versions.read([tmp_path / "a.xml", tmp_path / "b.xml"]))
    assert line(page, "Merge engines and numbered columns") == ["1", "2"]


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is no result of tests"):
        fluss_versions.read([tmp_path / "nowhere.xml"])
    with pytest.raises(SystemExit, match="expected files"):
        fluss_versions.main([])


def test_the_files_of_every_feature_are_there() -> None:
    named = [each for files in fluss_versions.FEATURES.values() for each in files]
    assert [each for each in named if not (fluss_versions.ROOT / each).exists()] == []
    assert set(fluss_versions._NEW) <= set(fluss_versions.FEATURES)
    assert all(name in fluss_versions.PAGE.read_text() for name in fluss_versions.FEATURES)
