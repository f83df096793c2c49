"""The JVM as the real code sees it through py4j: exceptions, maps, and the few classes that it looks up by name."""

# ruff: noqa: N802 - the methods are named by Java

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError


class JavaMap(dict[str, str]):
    """A map of the JVM as py4j hands it out: `get` answers None for a key that is not there, whatever the default."""

    def get(self, key: str, default: object = None) -> Any:
        return super().get(key)


class JavaException:
    """An exception of the JVM. Methods that it does not have fail as those of py4j."""

    _target_id = "o0"

    def __init__(self, name: str, message: str) -> None:
        self._name = name
        self._message = message

    def getClass(self) -> SimpleNamespace:
        name = self._name
        return SimpleNamespace(getName=lambda: f"org.apache.iceberg.exceptions.{name}", getSimpleName=lambda: name)

    def getMessage(self) -> str:
        return self._message

    def getCause(self) -> None:
        return None

    def __getattr__(self, name: str) -> object:
        def call(*_arguments: object) -> object:
            raise Py4JError(f"{self._name} has no method {name}")

        return call


def java_error(name: str, message: str) -> Py4JJavaError:
    """Return the error that py4j raises when Iceberg throws an exception."""
    return Py4JJavaError(message, JavaException(name, message))


class _Jvm(SimpleNamespace):
    """Like the real JVM, it is a key by which its classes are cached."""

    __hash__ = object.__hash__


def model_jvm() -> _Jvm:
    """Return the part of the JVM that commits call."""
    mapper = SimpleNamespace(readTree=lambda file: file, writeValueAsString=json.dumps)
    iceberg = SimpleNamespace(
        util=SimpleNamespace(JsonUtil=SimpleNamespace(mapper=lambda: mapper)),
        expressions=SimpleNamespace(Expressions=SimpleNamespace(alwaysTrue=lambda: True)),
    )
    return _Jvm(org=SimpleNamespace(apache=SimpleNamespace(iceberg=iceberg)))
