"""What the pages say of a real tiering server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_support import facts_of, rows_of, see, see_rows
from page_tables import ORIGIN, OUT_OF_SPACE

import airflow_provider_fluss
from fluss_tiering.model.lake import MaintenanceReport

PAGE = Path(airflow_provider_fluss.__file__).parent / "plugins" / "page"


def test_a_table_is_shown_with_its_status(reader, tables, name):
    tables.tier(tables.create(name("good"), rows=10), 10)
    tables.fail(tables.create(name("bad")))
    tables.park(tables.create(name("worse")))
    tables.interrupt(tables.create(name("stopped")))
    # E30: what fails comes first.
    worse, bad, good, stopped = see_rows(reader, 4, q=name(""))
    assert (stopped["Status"], stopped["Failures"]) == ("Interrupted", "0")  # E35
    assert (good["Table"], good["Status"], good["Epoch"], good["Failures"]) == (name("good"), "Scheduled", "1", "0")
    assert good["Last tiered"].endswith(("now", "ago"))
    assert (bad["Status"], bad["Failures"]) == ("Failed", "1")
    assert bad["Last error"].startswith("No space left on device: executor 3")
    assert (worse["Status"], worse["Failures"], worse["Next round"]) == ("Parked", "10", "when resumed")
    (only,) = see_rows(reader, 1, q=name("").upper(), status="Parked")
    assert only["Table"] == name("worse")


def test_the_next_round_of_a_table_is_at_the_earliest_when_its_freshness_is_over(reader, tables, name):
    tables.tier(tables.create(name("rests")), 0)
    tables.create(name("waits"), rows=10)
    rests, waits = see_rows(reader, 2, q=name(""))
    assert rests["Next round"] == waits["Next round"] == "in 59 min"


def test_a_page_has_a_hundred_tables_and_leads_to_the_others(reader, tables, name):
    created = [str(each) for each in tables.create_many(name("many"), 205)]
    shown = []
    for page, number in ((1, 100), (2, 100), (3, 5), (99, 5)):
        answer = see(reader, "./", until=lambda found: "of 205" in found.text, q=name("many"), page=page)
        assert len(rows_of(answer)) == number
        assert f"Page {min(page, 3)} of 3" in answer.text
        shown += [each["Table"] for each in rows_of(answer)] if page < 99 else []
    assert shown == created
    (first, *_) = rows_of(reader.get("./", params={"q": name("many"), "order": "table", "descending": "1"}))
    assert first["Table"] == created[-1]


def test_only_the_tables_of_a_task_are_shown(reader, tables, name):
    for each in ("a", "b", "c"):
        tables.create(name(each))
    rows = see_rows(reader, 2, tables=[name("a"), name("c")])
    assert [each["Table"] for each in rows] == [name("a"), name("c")]


def test_a_table_has_the_history_of_its_rounds(reader, tables, name):
    path = tables.create(name("history"))
    tables.tier(path, 1_234_567)
    tables.fail(path)
    answer = see(reader, "table", until=lambda found: found.status_code == 200, table=str(path))
    newest, oldest = rows_of(answer)
    assert (newest["Epoch"], newest["Outcome"], newest["Rows"]) == ("2", "Failed", "–")
    assert (oldest["Epoch"], oldest["Outcome"], oldest["Rows"], oldest["Size"]) == (
        *("1", "Tiered", "1,234,567"),
        "40.0 MiB",
    )
    assert "OSError(28, &#39;No space left on device&#39;)" in answer.text
    assert "Rows of each round: 2 rounds, 1 of them failed; the highest value is 1,234,567." in answer.text
    assert answer.text.count("<rect") == 6


def test_a_table_that_fails_says_since_when_why_of_which_run_and_what_is_next(reader, tables, name):  # E30
    path = tables.create(name("waits_for_a_retry"), freshness="1s", rows=3)
    tables.fail(path)
    tables.fail(path, "Metadata file missing: s3://lake/x.json")
    tables.claim(path)
    answer = see(reader, "table", until=lambda found: ">Running round<" in found.text, table=str(path))
    assert '<span class="badge tiering">Tiering</span>' in answer.text
    assert '<span class="failures" title="Failures in a row">2</span>' in answer.text
    (trouble,) = re.findall(r'<section class="banner failed trouble".*?</section>', answer.text, re.DOTALL)
    said = [line for line in (each.strip() for each in re.sub(r"<[^>]*>", "\n", trouble).splitlines()) if line]
    assert said[0] == "2 failures in a row, since"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", said[1])
    assert said[3:5] == ["Metadata file missing: s3://lake/x.json", "Running round"]
    assert said[-4:] == ["What happens next", "A round runs now.", "What you can do", "Remove the cause"]


def test_what_one_can_do_for_a_table_that_fails_is_beside_its_error(airflow, tables, name):  # E30
    parked, resting = tables.create(name("parked")), tables.create(name("resting"))
    tables.park(parked)
    tables.fail(resting)
    with airflow.session("olga") as session:
        for path, said in ((parked, "The table is parked until somebody resumes it."), (resting, "becomes Pending")):
            answer = see(session, "table", until=lambda found: "trouble" in found.text, table=str(path))
            (trouble,) = re.findall(r'<section class="banner failed trouble".*?</section>', answer.text, re.DOTALL)
            assert said in trouble
            assert 'action="resume"' in trouble
            assert answer.text.count('action="resume"') == 1


def test_a_round_leads_to_its_run_its_log_and_spark(reader, tables, name):  # E31
    path = tables.create(name("started_by_a_task"))
    tables.fail(path)
    answer = see(reader, "table", until=lambda found: "trouble" in found.text, table=str(path))
    run = "../dags/fluss_tiering/runs/scheduled__2026-11-22T03%3A15%3A00%2B00%3A00"
    for address in (run, f"{run}/tasks/tier.submit/mapped/0?try_number=2", ORIGIN.spark_ui_url):
        # Beside the error, and in the list of rounds.
        assert answer.text.count(f'href="{address}"') == 2, address
    (row,) = rows_of(answer)
    assert (row["DAG run"], row["Driver"]) == ("fluss_tiering log", ORIGIN.spark_application_id)


def test_a_table_says_where_its_lake_table_is_and_what_its_options_are(reader, tables, name):  # E31
    path = tables.create(name("configured"), options={"jdbc.password": "hush", "owner": "<b>team</b>"})
    answer = see(reader, "table", until=lambda found: found.status_code == 200, table=str(path))
    shown = facts_of(answer)
    assert shown["Lake table"] == str(path)
    assert shown["Location"].endswith(str(path).replace(".", "/"))
    assert (shown["jdbc.<wbr>password"], shown["owner"]) == ("***", "&lt;b&gt;team&lt;/b&gt;")
    assert "hush" not in answer.text


def test_rounds_without_rows_are_one_row(reader, tables, name):  # E32
    path = tables.create(name("mostly_quiet"))
    for rows in (0, 1_000, 0, 0, 0, 2_000):
        tables.tier(path, rows)
    answer = see(reader, "table", until=lambda found: found.status_code == 200, table=str(path))
    bodies = re.findall(r"<tbody[^>]*>.*?</tbody>", answer.text, re.DOTALL)
    assert "3 rounds without rows" in bodies[1]
    assert "3\N{EN DASH}5" in bodies[1]
    assert [each.count("<tr>") for each in bodies] == [1, 1, 3, 1, 1]
    assert 'class="folded"' in bodies[2]
    assert answer.text.count("<rect") == 3 * 2
    assert "Rounds without rows are left out" in answer.text


def test_a_table_has_what_its_maintenance_did(reader, tables, name):
    path = tables.create(name("maintained"))
    before = see(reader, "table", until=lambda found: found.status_code == 200, table=str(path))
    assert facts_of(before)["Last maintained"] == "–"
    assert "Files saved" not in facts_of(before)

    tables.maintain(path, MaintenanceReport(0, 1_234, 3 << 20, 2, 9))
    shown = facts_of(see(reader, "table", until=lambda found: "Files saved" in found.text, table=str(path)))
    assert shown["Last maintained"].split("\n")[0].endswith(("now", "ago"))
    assert {key: shown[key] for key in ("Files saved", "Rewritten", "Snapshots expired", "Files deleted")} == {
        "Files saved": "1,234",
        "Rewritten": "3.0 MiB",
        "Snapshots expired": "2",
        "Files deleted": "9",
    }


def test_a_lease_is_shown_with_its_tables_and_its_time(reader, tables, name):
    path = tables.create(name("leased"), rows=5)
    tables.claim(path)
    answer = see(reader, "leases", until=lambda found: f"table={path}" in found.text)
    (lease,) = [each for each in rows_of(answer) if name("leased") in each["Lease"]]
    assert (lease["Tables"], lease["KV snapshots"]) == (str(path), "2")
    assert lease["Time left"].startswith("5 h 59 min")


def test_what_a_server_says_is_text_and_no_html(reader, tables, name):
    path = tables.create(name("evil"))
    tables.fail(path, "<script>alert(1)</script> \x1b[31mred '\"><b>")
    see_rows(reader, 1, q=name("evil"))
    for answer in (reader.get("./", params={"q": name("evil")}), reader.get("table", params={"table": str(path)})):
        assert "<script>alert" not in answer.text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answer.text
        assert "\x1b" not in answer.text
    search = reader.get("./", params={"q": '"><script>alert(1)</script>', "order": "<b>", "status": "<i>"})
    assert "<script>alert" not in search.text
    assert "<b>" not in search.text
    assert "<i>" not in search.text


def test_a_table_that_does_not_exist_is_named(reader):
    for wrong in ("page.nothing", "nothing", "a.b.c"):
        answer = reader.get("table", params={"table": wrong})
        assert answer.status_code == 404
        assert wrong in answer.text
        assert "Show all tables of the connection fluss_default" in answer.text


def test_connections_of_the_environment_and_of_the_database_can_be_chosen(reader, tables, name):
    tables.create(name("everywhere"))
    answer = reader.get("./")
    assert re.findall(r"<option[^>]*>(\w+)</option>", answer.text) == ["fluss_default", "fluss_away", "fluss_other"]
    assert "<option selected>fluss_default</option>" in answer.text
    (row,) = see_rows(reader, 1, conn="fluss_other", q=name("everywhere"))
    assert row["Table"] == name("everywhere")


@pytest.mark.parametrize("conn", ["not_fluss", "nothing"])
def test_another_connection_cannot_be_asked(reader, conn):
    answer = reader.get("./", params={"conn": conn})
    assert answer.status_code == 404
    assert f"There is no connection {conn} of type fluss" in answer.text


@pytest.mark.parametrize("path", ["./", "table?table=db.t", "leases"])
def test_a_server_that_is_away_is_a_message_and_no_traceback(reader, path):
    answer = reader.get(path, params={**dict(reader.build_request("GET", path).url.params), "conn": "fluss_away"})
    assert answer.status_code == 503
    assert "The tiering server does not answer" in answer.text
    assert re.search(r"cannot reach the tiering server at 127\.0\.0\.1:\d+ \(connection fluss_away\)", answer.text)
    assert ">Try again</a>" in answer.text
    assert "Traceback" not in answer.text
    assert "<option selected>fluss_away</option>" in answer.text


def test_the_page_loads_nothing_from_elsewhere(reader, tables, name):
    path = tables.create(name("addresses"))
    tables.fail(path, OUT_OF_SPACE)
    see_rows(reader, 1, q=name("addresses"))
    for address in ("./", f"table?table={path}", "leases"):
        answer = reader.get(address)
        # A link to Spark loads nothing until somebody follows it.
        html = answer.text.replace(f'href="{ORIGIN.spark_ui_url}"', "")
        for target in re.findall(r'(?:href|src|action)="([^"]*)"', html):
            # Relative addresses are right below any path.
            assert not re.match(r"[a-z]+:|/", target), target
        assert "style=" not in answer.text
    for file in (PAGE / "static").iterdir():
        assert "http" not in file.read_text().replace("http://www.w3.org/2000/svg", ""), file


def test_a_file_of_the_page_is_kept_by_browsers_until_it_changes(reader):
    addresses = re.findall(r'"(static/[^"]*)"', reader.get("./").text)
    assert len(addresses) == 4
    for address in addresses:
        answer = reader.get(address)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "private, max-age=86400"
    assert reader.get("static/nothing.css").status_code == 404
    assert reader.get("static/..%2Fapp.py").status_code == 404
