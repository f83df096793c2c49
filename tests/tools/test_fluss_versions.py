"""The page about versions of Fluss says what the results of tests say."""

from __future__ import annotations

from pathlib import Path

import pytest

import fluss_versions

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
