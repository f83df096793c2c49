"""What a user can do on the page, who may do it, and what Airflow's audit log then says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from page_support import see
from test_page_access import ACTIONS

from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState

FORM = {"conn": "fluss_default", "table": "page.nothing", "lease": "nothing", "attempt": "1"}


@pytest.fixture
def editor(airflow) -> Iterator[httpx.Client]:
    """A browser's requests of somebody who may act."""
    with airflow.session("olga") as session:
        session.follow_redirects = True
        yield session


def token(session: httpx.Client, path: str = "./", **params: Any) -> str:
    """Return the token of a form on a page of this user."""
    answer = see(session, path, until=lambda found: 'name="token"' in found.text, **params)
    (found, *_) = re.findall(r'name="token" value="([^"]+)"', answer.text)
    return found


def audit_log(airflow, event: str) -> list[tuple[str, dict[str, Any]]]:
    with airflow.api("olga") as api:
        answer = api.get("/api/v2/eventLogs", params={"event": event, "limit": 100, "order_by": "-event_log_id"})
    return [(each["owner"], json.loads(each["extra"])) for each in answer.raise_for_status().json()["event_logs"]]


def state(client, path: TablePath) -> TieringState:
    (status,) = client.list_tiering_statuses(path)
    return status.state


def note(answer: httpx.Response) -> str:
    assert answer.status_code == 200
    (found,) = re.findall(r'role="status"><p>(.*?)</p>', answer.text, re.DOTALL)
    return found


@pytest.mark.parametrize("path", ACTIONS)
def test_a_user_who_may_not_edit_the_connection_is_refused(airflow, reader, tables, name, path):
    tables.create(name())
    with airflow.session("olga") as olga:
        stolen = token(olga, q=name())
    answer = reader.post(path, data={**FORM, "token": stolen})
    assert answer.status_code == 403
    assert "permission to edit the connection fluss_default" in answer.text


@pytest.mark.parametrize("path", ACTIONS)
@pytest.mark.parametrize("wrong", ["no token", "another token", "a page of another site"])
def test_a_form_of_another_page_is_refused(airflow, editor, tables, name, path, wrong):
    tables.create(name())
    good = token(editor, q=name())
    form = {**FORM, "token": {"no token": "", "another token": good[:-2] + "xx"}.get(wrong, good)}
    headers = {"Sec-Fetch-Site": "cross-site"} if wrong == "a page of another site" else {}
    answer = editor.post(path, data=form, headers=headers)
    assert answer.status_code == 403
    assert "was not sent by this page" in answer.text
    # The same form from the page itself is accepted, so that it was refused for this reason.
    assert editor.post(path, data={**FORM, "token": good}).status_code in {200, 404}


def test_a_user_who_may_only_read_sees_no_actions(reader, tables, name):
    tables.park(tables.create(name()))
    answer = see(reader, "./", until=lambda found: "Parked" in found.text, q=name())
    assert "<button" not in answer.text.replace("<noscript><button>", "")
    assert 'name="token"' not in answer.text


def test_a_parked_table_is_resumed(airflow, editor, client, tables, name):
    path = tables.create(name(), rows=1)
    tables.park(path)
    form = {"conn": "fluss_default", "table": str(path), "token": token(editor, "table", table=str(path))}
    answer = editor.post("resume", data=form)
    assert note(answer) == f"{path} is Pending. The next run that tiers pending tables takes it."
    assert str(answer.url).startswith(f"{airflow.url}/lake-tiering/table?table={path}&conn=fluss_default&note=")
    assert state(client, path) is TieringState.PENDING
    owner, extra = audit_log(airflow, "fluss_resume_table")[0]
    assert owner == "olga"
    assert extra == {"fluss_conn_id": "fluss_default", "table": str(path), "method": "POST"}
    # Once more: nothing has failed now, and the page says so.
    tables.tier(path)
    assert note(editor.post("resume", data=form)) == f"{path} was left as it is, because it is Scheduled."


def test_a_scheduled_table_is_made_pending_now(airflow, editor, client, tables, name):
    path = tables.create(name(), freshness="10d", rows=1)
    tables.tier(path)
    form = {"conn": "fluss_default", "table": str(path), "token": token(editor, "table", table=str(path))}
    assert "is Pending" in note(editor.post("tier-now", data=form))
    assert state(client, path) is TieringState.PENDING
    owner, extra = audit_log(airflow, "fluss_tier_table_now")[0]
    assert (owner, extra["table"]) == ("olga", str(path))


def test_a_lease_is_released_unless_a_newer_attempt_holds_it(airflow, editor, client, tables, name):
    path = tables.create(name(), rows=1)
    tables.claim(path)
    lease = f"application-{path}"
    (seen,) = client.list_leases(lease)
    form = {"conn": "fluss_default", "lease": lease, "token": token(editor, "leases")}
    newer = client.acquire_lease(lease, 60_000, seen.snapshots).attempt_token
    assert "a newer attempt holds it" in note(editor.post("release", data={**form, "attempt": seen.attempt_token}))
    assert client.list_leases(lease)
    assert note(editor.post("release", data={**form, "attempt": newer})) == f"The lease {lease} is released."
    assert not client.list_leases(lease)
    assert "had ended already" in note(editor.post("release", data={**form, "attempt": newer}))
    entries = [extra for owner, extra in audit_log(airflow, "fluss_release_lease") if owner == "olga"]
    assert [each["attempt_token"] for each in entries if each["lease_id"] == lease] == [
        *(str(newer), str(newer), str(seen.attempt_token)),
    ]


def test_what_a_server_refuses_is_told_and_is_in_the_audit_log(airflow, editor, tables, name):
    tables.create(name())
    form = {"conn": "fluss_default", "table": "page.nothing", "token": token(editor, q=name())}
    answer = editor.post("resume", data=form)
    assert answer.status_code == 404
    assert answer.text.count("page.nothing") >= 2
    entry = audit_log(airflow, "fluss_resume_table")[0][1]
    assert entry["table"] == "page.nothing"
    assert "page.nothing does not exist" in entry["not_done"]
    away = editor.post("resume", data={**form, "conn": "fluss_away"})
    assert away.status_code == 503
    assert "cannot reach the tiering server" in away.text


HUGE, NUL, LONG = "99999999999999999999999", "a.\0b", "a." + 100_000 * "b"


WRONG = [
    *(("release", {"attempt": value}) for value in (HUGE, "-1", "1.5", "nan", NUL, LONG, str(2**63), "")),
    *(("release", {"lease": value}) for value in (NUL, LONG, "")),
    *((path, {field: value}) for path in ACTIONS for field in ("conn", "token") for value in (NUL, LONG)),
    *((path, {"conn": ""}) for path in ACTIONS),
    *((path, {"table": value}) for path in ("resume", "tier-now") for value in (NUL, LONG, "nodot", "", "a.b.c")),
]


def test_what_cannot_be_read_is_refused_and_not_in_the_audit_log(airflow, editor, tables, name):
    tables.create(name())
    form = {**FORM, "token": token(editor, q=name())}
    events = ("fluss_resume_table", "fluss_tier_table_now", "fluss_release_lease")
    before = [len(audit_log(airflow, event)) for event in events]
    for path, wrong in WRONG:
        answer = editor.post(path, data={**form, **wrong})
        assert answer.status_code == 422, (path, {key: value[:9] for key, value in wrong.items()})
        assert "<main" in answer.text
        assert len(answer.text) < 20_000
    assert [len(audit_log(airflow, event)) for event in events] == before


@pytest.mark.parametrize("path", ["./", "table", "leases"])
def test_no_value_in_an_address_makes_the_page_fail(reader, path):
    for field in ("conn", "q", "status", "order", "table", "tables", "note", "page", "descending"):
        for value in (HUGE, "-1", NUL, "b" * 50_000, "\N{GRINNING FACE}", "\ufffe"):
            answer = reader.get(path, params={"table": "a.b", field: value})
            assert answer.status_code in {200, 404, 422}, (field, value[:9])


def test_a_connection_that_is_none_of_flusss_is_not_called(airflow, editor, tables, name):
    tables.create(name())
    form = {"conn": "not_fluss", "table": "page.nothing", "token": token(editor, q=name())}
    before = len(audit_log(airflow, "fluss_resume_table"))
    assert editor.post("resume", data=form).status_code == 404
    assert len(audit_log(airflow, "fluss_resume_table")) == before


def test_words_in_an_address_are_no_note(reader):
    answer = reader.get("./", params={"note": "Your account is locked, call this number."})
    assert "account is locked" not in answer.text
    assert 'role="status"' not in answer.text
