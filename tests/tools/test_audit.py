"""The audit of the pins, by pip-audit, against a service of vulnerabilities on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import audit

ONE_FOR_OLDER_PYTHONS = """\
harmless==1.0
numpy==2.4.6 ; python_full_version < '3.10'
numpy==2.5.5 ; python_full_version >= '3.10'
"""


class Service(ThreadingHTTPServer):
    """A service that answers as OSV does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.known: dict[tuple[str, str], str] = {}
        """The vulnerability of a name and a version."""
        self.asked: set[tuple[str, str]] = set()

    @property
    def arguments(self) -> list[str]:
        return ["--vulnerability-service", "osv", "--osv-url", f"http://127.0.0.1:{self.server_port}/v1/query"]


class _Answers(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, version = query["package"]["name"], query["version"]
        self.server.asked.add((name, version))
        answer = {}
        if (name, version) in self.server.known:
            fixed = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.0"}]}
            affected = {"package": {"name": name, "ecosystem": "PyPI"}, "ranges": [fixed]}
            answer = {"vulns": [{"id": self.server.known[name, version], "summary": "bad", "affected": [affected]}]}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield service
        service.shutdown()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "CACHE", tmp_path / "cache")


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, pins: str = ONE_FOR_OLDER_PYTHONS) -> int:
    (tmp_path / "pins.txt").write_text(pins)
    monkeypatch.setattr("sys.argv", ["audit.py", "--pins", str(tmp_path / "pins.txt"), *arguments])
    return audit.main()


@pytest.mark.system
def test_each_pin_is_asked_for_also_those_of_other_pythons(service, tmp_path, monkeypatch, capsys):
    assert run(tmp_path, monkeypatch, *service.arguments) == 0
    assert service.asked == {("harmless", "1.0"), ("numpy", "2.4.6"), ("numpy", "2.5.5")}
    assert capsys.readouterr().out == "3 of 3 pins audited, 0 known vulnerabilities\n"


@pytest.mark.system
def test_a_vulnerability_is_told_with_the_version_that_mends_it(service, tmp_path, monkeypatch, capsys):
    service.known["numpy", "2.4.6"] = "PYSEC-1-2"
    assert run(tmp_path, monkeypatch, *service.arguments) == 1
    assert capsys.readouterr().out.splitlines() == [
        "numpy==2.4.6: PYSEC-1-2; fixed in 99.0",
        "3 of 3 pins audited, 1 known vulnerabilities",
    ]


@pytest.mark.system
def test_a_vulnerability_can_be_left_out_by_its_id(service, tmp_path, monkeypatch):
    service.known["numpy", "2.4.6"] = "PYSEC-1-2"
    assert run(tmp_path, monkeypatch, *service.arguments, "--ignore-vuln", "PYSEC-1-2") == 0


@pytest.mark.system
def test_without_the_network_one_line_says_so(service, tmp_path, monkeypatch, capsys):
    service.shutdown()
    service.server_close()
    assert run(tmp_path, monkeypatch, *service.arguments) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("error: not audited: ")
    assert line.endswith("this needs the network")
    assert not printed.out


def test_pins_that_the_service_does_not_know_are_no_success(tmp_path, monkeypatch, capsys):
    # pip-audit's answer for a package index that has no vulnerabilities to tell, with the status 0.
    def unknown(pins: list[audit.Pin], arguments: list[str]) -> list[dict]:
        return [{"name": pin.name, "skip_reason": "Dependency not found on PyPI"} for pin in pins]

    monkeypatch.setattr(audit, "_ask", unknown)
    assert run(tmp_path, monkeypatch) == 2
    printed = capsys.readouterr()
    assert printed.out == "0 of 3 pins audited, 0 known vulnerabilities\n"
    assert "3 of 3 pins were not audited" in printed.err
    assert printed.err.endswith('Try another one: ARGS="--vulnerability-service osv"\n')
    run(tmp_path, monkeypatch, "--vulnerability-service", "osv")
    assert "Try another one" not in capsys.readouterr().err
