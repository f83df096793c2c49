"""The notifier: what it learns of a failure, and what reaches a real SMTP server."""

from __future__ import annotations

import json
import time
from email import message_from_bytes, policy
from types import SimpleNamespace

import pytest
from aiosmtpd.controller import Controller
from airflow.providers.common.compat.sdk import AirflowException
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG, BaseNotifier
from airflow.sdk.bases.operator import BaseOperator
from airflow_names import AIRFLOW

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.missing_connection import UnreachableConnectionError
from airflow_provider_fluss.notifications.tiering import FlussTieringNotifier
from airflow_provider_fluss.operators.lease import FlussAcquireKvSnapshotLeaseOperator
from airflow_provider_fluss.operators.maintenance import FlussVerifyOperator
from examples.ports import free_ports

LOG_URL = "http://airflow/dags/dag/log"


class Recorded(BaseNotifier):
    """Keeps what it would send."""

    template_fields = ("text",)

    def __init__(self, text: str = "{{ fluss.message }}", sent: list | None = None, error: Exception | None = None):
        super().__init__()
        self.text = text
        self.sent = [] if sent is None else sent
        self.error = error

    def notify(self, context):
        if self.error:
            raise self.error
        self.sent.append((self.text, context["fluss"]))


@pytest.fixture
def failed(context):
    """The context of the task `wait` behind an acquire task with this XCom, after it failed."""

    def make(xcom: object, exception: Exception | None = None) -> dict:
        with DAG("dag") as dag:
            FlussAcquireKvSnapshotLeaseOperator(task_id="acquire", tables=["db.t"]) >> BaseOperator(task_id="wait")
        found = {**context("wait"), "dag": dag, "task": dag.get_task("wait"), "exception": exception}
        ti = SimpleNamespace(**vars(found["ti"]), log_url=LOG_URL, xcom_pull=lambda **_: xcom)
        return {**found, "ti": ti}

    return make


def test_each_table_is_told_with_status_epoch_cause_and_failures_in_a_row(client, new_table, acquire, driver, failed):
    good, bad, running, unclaimed = (new_table() for _ in range(4))
    lease = acquire(good, bad, running, unclaimed)
    driver.tier(lease, good)
    driver.fail_round(lease, bad, "no space\nleft, password=hunter2")
    driver.fail_round(lease, bad, "no space\nleft, password=hunter2")
    epoch = driver.claim(lease, running).tiering_epoch
    recorded = Recorded()
    FlussTieringNotifier(recorded)(failed(lease, AirflowException("1 of 4 tables failed")))
    ((text, failure),) = recorded.sent
    now = {str(each.path): each for each in client.list_tiering_statuses()}
    assert text.splitlines() == [
        f"Task wait of dag failed in {failure.run_id}.",
        "3 of 4 tables were not tiered:",
        f"- {bad} (Failed, epoch {now[bad].tiering_epoch}, 2 failures in a row): no space left, password=***",
        f"- {running} (Tiering, epoch {epoch}): no reason is known",
        f"- {unclaimed} ({now[unclaimed].state}, epoch {now[unclaimed].tiering_epoch}): no reason is known",
        "Error of the task: 1 of 4 tables failed",
        f"Log: {LOG_URL}",
    ]
    assert failure.subject == "dag: 3 of 4 tables were not tiered"
    assert failure.error == "1 of 4 tables failed"


def test_a_parked_table_is_told_as_one(new_table, acquire, driver, failed):
    table = new_table()
    lease = acquire(table)
    for _ in range(10):
        driver.fail_round(lease, table, "broken")
    recorded = Recorded()
    FlussTieringNotifier(recorded)(failed(lease))
    assert "10 failures in a row, parked until it is resumed): broken" in recorded.sent[0][0]


def test_tables_of_a_task_without_a_lease_are_told_by_their_status(new_table, acquire, driver, failed):
    good, bad = new_table(), new_table()
    lease = acquire(good, bad)
    driver.tier(lease, good)
    driver.fail_round(lease, bad, "broken")
    recorded = Recorded()
    FlussTieringNotifier(recorded, tables=[good, "db.{{ bad }}", "db.gone"])({**failed(None), "bad": bad[3:]})
    (failure,) = [each for _, each in recorded.sent]
    assert failure.total == 3
    assert failure.subject == "dag: 1 of 3 tables was not tiered, and the status of 1 is not known"
    assert [(each.table, each.status, each.cause) for each in failure.tables] == [
        (bad, "Failed", "broken"),
        ("db.gone", None, "table db.gone does not exist: `fluss-tiering tables list` shows all tables"),
    ]


def test_without_an_answer_of_the_server_the_tables_and_the_error_of_the_task_are_told(
    new_table, acquire, failed, monkeypatch
):
    table = new_table()
    lease = acquire(table)
    away = {"conn_type": "fluss", "host": "127.0.0.1", "port": free_ports(1)[0]}
    monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", json.dumps(away))
    recorded = Recorded("{{ fluss.subject }} | {{ fluss.error }} | {{ fluss.tables[0].cause }}")
    began = time.monotonic()
    FlussTieringNotifier(recorded)(failed(lease, AirflowException("timed out")))
    subject, error, cause = recorded.sent[0][0].split(" | ")
    assert subject == "dag: the status of 1 of 1 table is not known"
    assert error == "timed out"
    assert "cannot reach the tiering server" in cause
    assert time.monotonic() - began < 60


def unreachable(conn_id: str) -> None:
    raise UnreachableConnectionError(conn_id)


def malformed(**changes: object) -> dict[str, object]:
    """Return a lease that has these values instead of its own."""
    whole = {"lease_id": "x", "attempt_token": 1, "tables": ["db.a", "db.b"], "lease_duration_ms": 60_000}
    return {**whole, "fluss_conn_id": "fluss_default", **changes}


def test_a_connection_that_cannot_be_looked_up_is_the_reason_why_the_status_is_missing(failed, monkeypatch):
    monkeypatch.setattr(FlussHook, "get_connection", staticmethod(unreachable))
    recorded = Recorded()
    FlussTieringNotifier(recorded, tables=["db.c"])(failed(malformed(), AirflowException("timed out")))
    ((text, failure),) = recorded.sent
    away = "Connection 'fluss_default' cannot be looked up at present: Airflow's API server does not answer"
    assert text.splitlines()[1:-1] == [
        "The status of 3 of 3 tables is not known:",
        *(f"- db.{each} (status unknown): {away}" for each in "abc"),
        "Error of the task: timed out",
    ]
    assert "Error of the task: timed out" in failure.html


@pytest.mark.parametrize(
    ("lease", "tables"),
    [
        (malformed(attempt_token=True), ["db.a", "db.b"]),
        (malformed(attempt_token=2**70), ["db.a", "db.b"]),
        (malformed(lease_id=7), ["db.a", "db.b"]),
        (malformed(tables="db.a"), ["db.a"]),
        (malformed(tables=[7]), ["7"]),
    ],
)
def test_a_malformed_lease_does_not_keep_the_message_back(server, failed, lease, tables):
    recorded = Recorded()
    FlussTieringNotifier(recorded)(failed(lease, AirflowException("timed out")))
    ((text, failure),) = recorded.sent
    assert [(each.table, each.status) for each in failure.tables] == [(table, None) for table in tables]
    assert all(each.cause for each in failure.tables)
    assert "Error of the task: timed out" in text


def test_a_failed_task_of_maintenance_is_not_told_as_tables_that_were_not_tiered(new_table, acquire, driver, failed):
    table = new_table()
    lease = acquire(table)
    driver.fail_round(lease, table, "broken")
    context = failed(lease, AirflowException("3 rows differ"))
    context["task"] = FlussVerifyOperator(task_id="verify", tables=[table])
    recorded = Recorded()
    FlussTieringNotifier(recorded, tables=[table])(context)
    ((text, failure),) = recorded.sent
    assert text.splitlines()[1:] == ["3 rows differ", f"Log: {LOG_URL}"]
    assert failure.subject == "dag: task wait failed"


@pytest.mark.parametrize("lease", [malformed(tables=None), 7, "lease", [1]])
def test_a_lease_without_tables_is_told_as_such(server, failed, lease):
    recorded = Recorded()
    FlussTieringNotifier(recorded)(failed(lease, AirflowException("timed out")))
    lines = recorded.sent[0][0].splitlines()
    assert lines[1] == "timed out"
    assert lines[2].startswith("The tables of the task are not all known: Expected the XCom of a FlussAcquire")


@pytest.mark.parametrize("template", ["{{ bad }}", "db.gone", ["db.gone"], [], None, "{{ nothing }}"])
def test_a_text_is_one_table(server, failed, template):
    recorded = Recorded()
    FlussTieringNotifier(recorded, tables=template)({**failed(None), "bad": "db.gone", "nothing": ""})
    (failure,) = [each for _, each in recorded.sent]
    expected = ["db.gone"] if template else []
    if template == "{{ nothing }}":
        # An older Airflow keeps a template whose result is empty.
        expected = [] if AIRFLOW >= (3, 3) else [template]
    assert [each.table for each in failure.tables] == expected
    assert failure.total == len(expected)


def test_a_failed_run_without_tables_tells_its_reason(failed):
    context = {**failed(None), "reason": "task_failure", "dag": DAG("empty")}
    recorded = Recorded("{{ fluss.message }}|{{ fluss.subject }}")
    FlussTieringNotifier(recorded)(context)
    message, subject = recorded.sent[0][0].split("|")
    assert message.splitlines() == [f"The run of empty failed in {context['run_id']}.", "task_failure"]
    assert subject == "empty: the run failed"


def test_a_notifier_that_fails_does_not_keep_the_others_from_being_called_nor_keeps_a_text(failed):
    context, recorded = failed(None, AirflowException("first")), Recorded("{{ fluss.error }}")
    notifier = FlussTieringNotifier([Recorded(error=ConnectionError("no mail server")), recorded])
    for error in ("first", "second"):
        with pytest.raises(ConnectionError, match="no mail server"):
            notifier({**context, "exception": AirflowException(error)})
    assert [text for text, _ in recorded.sent] == ["first", "second"]


def test_a_mail_reaches_a_real_smtp_server(new_table, acquire, driver, failed, monkeypatch):
    received = []

    class Mailbox:
        async def handle_DATA(self, server, session, envelope):  # noqa: N802 - aiosmtpd calls it by this name
            received.append(message_from_bytes(envelope.content, policy=policy.default))
            return "250 OK"

    (port,) = free_ports(1)
    controller = Controller(Mailbox(), hostname="127.0.0.1", port=port)
    controller.start()
    extra = {"disable_ssl": True, "disable_tls": True, "from_email": "airflow@example.org"}
    monkeypatch.setenv(
        "AIRFLOW_CONN_SMTP_DEFAULT",
        json.dumps({"conn_type": "smtp", "host": "127.0.0.1", "port": port, "extra": extra}),
    )
    try:
        table = new_table()
        lease = acquire(table)
        driver.fail_round(lease, table, "<no space left>")
        FlussTieringNotifier(
            SmtpNotifier(to="ops@example.org", subject="{{ fluss.subject }}", html_content="{{ fluss.html }}")
        )(failed(lease))
    finally:
        controller.stop()
    (mail,) = received
    assert mail["To"] == "ops@example.org"
    assert mail["Subject"] == "dag: 1 of 1 table was not tiered"
    body = mail.get_body(("html",)).get_content()
    assert f"<li>{table} (Failed, epoch" in body
    assert "1 failure in a row): &lt;no space left&gt;</li>" in body
    assert f'<a href="{LOG_URL}">' in body
