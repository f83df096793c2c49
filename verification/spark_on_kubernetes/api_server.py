"""The part of Kubernetes' API that Spark uses: objects of one namespace that are made, changed, listed and watched."""

from __future__ import annotations

import json
import queue
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

import yaml

Object = dict[str, Any]

_PATH: Final = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<resource>\w+)(?:/(?P<name>[^/]+))?")
_KEEPALIVE_S: Final = 1.0


class Node(Protocol):
    """Where pods run."""

    def start(self, api: ApiServer, pod: Object) -> None: ...

    def stop(self, name: str) -> None: ...


class ApiServer:
    """Keeps objects, and tells watchers of each change.

    Args:
        check: Raises an error for an object that Kubernetes would refuse.
        node: Where pods run.

    Attributes:
        refused: The errors of objects that were refused.
    """

    def __init__(self, check: Callable[[Object], None], node: Node) -> None:
        self._check = check
        self._node = node
        self._lock = threading.RLock()
        self._objects: dict[tuple[str, str], Object] = {}
        self._watchers: list[tuple[str, Callable[[Object], bool], queue.SimpleQueue[Object]]] = []
        self._version = 0
        self.refused: list[str] = []

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve until the block ends, and yield the address."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()

    def get(self, resource: str, name: str) -> Object | None:
        with self._lock:
            return self._objects.get((resource, name))

    def list(self, resource: str, selects: Callable[[Object], bool] = lambda _: True) -> list[Object]:
        with self._lock:
            return [each for (kind, _), each in self._objects.items() if kind == resource and selects(each)]

    def make(self, resource: str, made: Object) -> Object:
        """Keep a new object, or one in the place of an older one of the name."""
        try:
            self._check(made)
        except Exception as error:
            self.refused.append(f"{made['kind']}: {error}")
            raise
        metadata = made["metadata"]
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        if resource == "pods":
            made["status"] = {"phase": "Pending"}
        self.change(resource, made, "ADDED")
        if resource == "pods":
            self._node.start(self, made)
        return made

    def change(self, resource: str, changed: Object, how: str = "MODIFIED") -> None:
        """Tell watchers of an object that was added, modified or deleted."""
        with self._lock:
            self._version += 1
            name = changed["metadata"]["name"]
            changed["metadata"]["resourceVersion"] = str(self._version)
            if how == "DELETED":
                self._objects.pop((resource, name), None)
            else:
                self._objects[resource, name] = changed
            event = json.loads(json.dumps({"type": how, "object": changed}))
            for kind, selects, events in self._watchers:
                if kind == resource and selects(changed):
                    events.put(event)

    def delete(self, resource: str, deleted: Object) -> None:
        self.change(resource, deleted, "DELETED")
        if resource == "pods":
            self._node.stop(deleted["metadata"]["name"])

    @contextmanager
    def watched(self, resource: str, selects: Callable[[Object], bool]) -> Iterator[queue.SimpleQueue[Object]]:
        """Yield the events of the objects that are there, and of each change until the block ends."""
        events: queue.SimpleQueue[Object] = queue.SimpleQueue()
        watcher = (resource, selects, events)
        with self._lock:
            for each in self.list(resource, selects):
                events.put(json.loads(json.dumps({"type": "ADDED", "object": each})))
            self._watchers.append(watcher)
        try:
            yield events
        finally:
            with self._lock:
                self._watchers.remove(watcher)

    def answer_list(self, resource: str, selects: Callable[[Object], bool]) -> Object:
        with self._lock:
            items = self.list(resource, selects)
            return {
                "kind": "List",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": str(self._version)},
                "items": items,
            }


def selector(labels: str, fields: str) -> Callable[[Object], bool]:
    """Return whether an object has labels, such as `a=b,c!=d`, and a name, as `metadata.name=x`."""
    terms = [re.fullmatch(r"([^!=]+)(!?=)=?(.*)", term) for term in labels.split(",") if term]
    name = dict(term.split("=", 1) for term in fields.split(",") if term).get("metadata.name")

    def selects(each: Object) -> bool:
        has = each["metadata"].get("labels", {})
        wanted = all((has.get(term[1]) == term[3]) == (term[2] == "=") for term in terms if term)
        return wanted and name in (None, each["metadata"]["name"])

    return selects


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        resource, name, query = self._asked()
        selects = selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        if name:
            self._send(self.api.get(resource, name))
        elif query.get("watch") != "true":
            self._send(self.api.answer_list(resource, selects))
        elif self.headers.get("Upgrade"):
            # To a client that asks for a WebSocket this says that there is none: it watches by HTTP then.
            self._send({})
        else:
            self._watch(resource, selects)

    def do_POST(self) -> None:
        resource, _, _ = self._asked()
        self._send(self.api.make(resource, self._body()), 201)

    def do_PATCH(self) -> None:
        resource, name, _ = self._asked()
        body = self._body()
        applied = "apply-patch" in self.headers["Content-Type"]
        self._send(self.api.make(resource, body) if applied else self.api.get(resource, name))

    def do_DELETE(self) -> None:
        resource, name, query = self._asked()
        self._body()
        for each in self.api.list(
            resource, selector(query.get("labelSelector", ""), f"metadata.name={name}" * bool(name))
        ):
            self.api.delete(resource, each)
        self._send({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _asked(self) -> tuple[str, str, dict[str, str]]:
        url = urlsplit(self.path)
        asked = _PATH.fullmatch(url.path)
        if asked is None:
            return "", "none", {}
        return asked["resource"], asked["name"] or "", {key: value for key, (value,) in parse_qs(url.query).items()}

    def _body(self) -> Any:
        return yaml.safe_load(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _send(self, answer: Object | None, code: int = 200) -> None:
        if answer is None:
            code, answer = (
                404,
                {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404},
            )
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, resource: str, selects: Callable[[Object], bool]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with self.api.watched(resource, selects) as events:
            while True:
                try:
                    line = json.dumps(events.get(timeout=_KEEPALIVE_S)).encode() + b"\n"
                except queue.Empty:
                    line = b"\n"
                try:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
                except OSError:
                    return
