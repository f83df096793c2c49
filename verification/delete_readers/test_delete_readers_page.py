"""The page about readers and deletes says what the results of tests say."""

from __future__ import annotations

from pathlib import Path

import delete_readers_page
import pytest

CASE = """<testcase name="{name}"><properties><property name="engine" value="{engine}"/>
<property name="kind" value="{kind}"/><property name="answer" value="{answer}"/></properties>{end}</testcase>"""


def results(folder: Path, *, end: str = "") -> Path:
    cases = [
        CASE.format(name="a", engine="Spark 4", kind="v2-equality", answer="yes", end=""),
        CASE.format(name="b", engine="Snail 1", kind="v2-equality", answer="too fast", end=end),
        '<testcase name="c"/>',
    ]
    path = folder / "results.xml"
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return path


def test_an_engine_reads_a_table_or_says_why_it_does_not(tmp_path: Path) -> None:
    page = delete_readers_page.page(delete_readers_page.read(results(tmp_path)))
    assert "| Format version | Deletes | Spark 4 | Snail 1 |" in page
    assert "| 2 | equality delete files | yes | no |" in page
    assert "| 3 | deletion vectors | – | – |" in page
    assert page.endswith("\n- Snail 1: `too fast`\n")


def test_wrong_rows_are_no_page(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(delete_readers_page, "ROOT", tmp_path)
    monkeypatch.setattr(delete_readers_page, "PAGE", tmp_path / "page.md")
    assert delete_readers_page.main([str(results(tmp_path, end="<failure/>"))]) == 1
    assert "not written, since tests failed: Snail 1, v2-equality" in capsys.readouterr().out
    assert not (tmp_path / "page.md").exists()
    assert delete_readers_page.main([str(results(tmp_path))]) == 0
    assert "Snail 1" in (tmp_path / "page.md").read_text()


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is no result of tests"):
        delete_readers_page.read(tmp_path / "nowhere.xml")
    (tmp_path / "empty.xml").write_text("<testsuites/>")
    with pytest.raises(SystemExit, match="has no results"):
        delete_readers_page.read(tmp_path / "empty.xml")
    with pytest.raises(SystemExit, match="expected one file"):
        delete_readers_page.main([])


def test_every_kind_of_the_tests_is_on_the_page() -> None:
    tests = (Path(__file__).with_name("test_delete_readers.py")).read_text()
    assert all(f'"{kind}": (' in tests for kind in delete_readers_page.KINDS)
    assert all(deletes in delete_readers_page.PAGE.read_text() for _, deletes in delete_readers_page.KINDS.values())
