"""Exceptions of the JVM as the real code sees them through py4j."""

# ruff: noqa: N802 - the methods are named by Java

from __future__ import annotations

from types import SimpleNamespace

from py4j.protocol import Py4JError, Py4JJavaError


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
