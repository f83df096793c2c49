"""The example alert rules and the dashboard speak of metrics and labels that a running server really exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from cases import cases
from certificates import Authority
from engine_support import ServerThread, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.lake import MaintenanceReport
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile
from metrics_support import scrape

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "observability"
NOT_METRICS = {
    "abs",
    *("by", "without", "on", "ignoring", "and", "or", "unless", "bool", "offset", "group_left", "group_right"),
    *("sum", "max", "min", "avg", "count", "topk", "bottomk", "rate", "increase", "absent", "histogram_quantile"),
}
SELECTOR = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)\s*(?:\{(?P<labels>[^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
STRING = re.compile(r'"[^"]*"')


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Name -> labels of every metric of a server with TLS, a token, an issuer, and a parked and maintained table."""
    folder: Path = tmp_path_factory.mktemp("observability")
    authority = Authority(folder / "ca")
    pair = authority.pair("server", "server")
    now = datetime.now(UTC)
    token, text = StaticToken.create("admin", [Grant.parse("admin")], now, now + timedelta(days=30))
    TokenFile(folder / "tokens.json").add(token)
    (folder / "access.toml").write_text("grants = []\n")
    security = ClientSecurity(token=text, tls=True, ca=authority.cert.read_bytes())
    with (
        ServerThread(
            folder / "data",
            max_consecutive_failures=1,
            tls_cert_file=pair.cert,
            tls_key_file=pair.key,
            tokens_file=folder / "tokens.json",
            access_file=folder / "access.toml",
            # Nothing listens there.
            oidc_issuer="http://127.0.0.1:1",
            oidc_audience="fluss-tiering",
        ) as running,
        TieringClient(running.target, security=security) as client,
    ):
        (claim,) = client.claim_tables([new_table(client).path], "X", None, "d")
        assert isinstance(claim, Claim)
        client.heartbeat(
            failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, "boom")],
            maintained=[MaintenanceReport(claim.table_id)],
        )
        client.drop_table(new_table(client, [1]).path, drop_untiered=True)
        samples = scrape(running.server.metrics_port, authority.cert, text)
    return {name: {label for labels, _ in series for label in labels} for name, series in samples.items()}


def alert_expressions() -> Iterator[tuple[str, str, set[str]]]:
    """Where, expression, and the labels that its texts use."""
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            texts = " ".join(rule["annotations"].values())
            yield rule["alert"], rule["expr"], set(re.findall(r"\$labels\.(\w+)", texts))


def dashboard_expressions() -> Iterator[tuple[str, str, set[str]]]:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
            yield variable["name"], name, {label}


EXPRESSIONS = [*alert_expressions(), *dashboard_expressions()]


def metrics_of(expression: str) -> dict[str, set[str]]:
    """Name -> labels that an expression selects by."""
    found: dict[str, set[str]] = {}
    for match in SELECTOR.finditer(STRING.sub('""', GROUPING.sub("", expression))):
        name = match["name"]
        if name in NOT_METRICS or expression[max(0, match.start() - 1) : match.start()] in ("[", "$"):
            continue
        found.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", match["labels"] or ""))
    return found


@cases(("where", "expression", "shown"), EXPRESSIONS)
def test_what_is_asked_for_is_exported(
    exported: dict[str, set[str]], where: str, expression: str, shown: set[str]
) -> None:
    plain = re.sub(r"\[[^\]]*\]", "", expression)
    metrics = metrics_of(plain)
    assert metrics, where
    grouped = {label.strip() for labels in GROUPING.findall(plain) for label in labels.split(",")}
    for name, selected in metrics.items():
        assert name in exported, f"{where}: {name} is not exported"
        assert selected <= exported[name], f"{where}: {name} has no {selected - exported[name]}"
    available = set().union(*(exported[name] for name in metrics))
    assert grouped | shown <= available, f"{where}: there is no {(grouped | shown) - available}"
    assert plain.count("(") == plain.count(")")


def test_alerts_and_panels_are_unique_and_explained() -> None:
    rules = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    assert all(rule["labels"]["severity"] and rule["annotations"]["summary"] for rule in rules)
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)


def test_the_page_names_the_metrics_that_are_exported(exported: dict[str, set[str]]) -> None:
    page = (DOCS / "reference" / "metrics.md").read_text()
    explained = re.findall(r"^\| `(fluss_\w+)(?:\{([\w,]+)\})?` \|", page, re.MULTILINE)
    series = {name: labels for name, labels in exported.items() if name.startswith("fluss_")}
    names = {re.sub(r"(_bucket|_count|_sum)$", "", name) for name in series if not name.endswith("_created")}
    assert sorted(name for name, _ in explained) == sorted(names)
    for name, labels in explained:
        found = set().union(
            *(each for key, each in series.items() if re.sub(r"(_bucket|_count|_sum)$", "", key) == name)
        )
        expected = {"database", "table", "tableId"} if "_table_" in name else set(labels.split(",")) - {""}
        assert found - {"le"} == expected, name


def test_the_check_can_fail(exported: dict[str, set[str]]) -> None:
    assert metrics_of('sum by (le) (rate(a_total{b="x", c=~"y"}))') == {"a_total": {"b", "c"}}
    assert "a_total" not in exported


def test_a_page_says_what_to_do_for_each_alert_and_each_error() -> None:  # E38
    rules = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
    page = (DOCS / "how-to" / "when-something-is-wrong.md").read_text()
    names = [rule["alert"] for rule in rules]
    assert sorted(re.findall(r"^### (.+)$", page, re.MULTILINE)) == sorted(names)
    for rule in rules:
        assert rule["annotations"]["runbook"] == f"docs/how-to/when-something-is-wrong.md#{rule['alert'].lower()}"
    errors = page.partition("\n## Errors\n")[2]
    assert re.findall(r"^\| `([A-Z_]+)` \|", errors, re.MULTILINE) == [*ErrorCode]
