"""The fields that a value of the model and its message have under the same names, copied in both directions."""

from __future__ import annotations

import dataclasses
from typing import Any

from google.protobuf.message import Message


class SharedFields:
    """The fields that a dataclass and a message share.

    Args:
        kind: The dataclass.
        others: The fields of the dataclass that the message does not have in the same form.

    Raises:
        KeyError: If the message lacks another field of the dataclass.
    """

    def __init__(self, kind: type, message: type[Message], *others: str) -> None:
        known = message.DESCRIPTOR.fields_by_name
        self._names = [each.name for each in dataclasses.fields(kind) if each.name not in others]
        self._optional = [name for name in self._names if known[name].has_presence]
        self._always = [name for name in self._names if not known[name].has_presence]

    def of_value(self, value: object) -> dict[str, Any]:
        """Return the fields of a value by their names."""
        return {name: getattr(value, name) for name in self._names}

    def of_message(self, message: Message) -> dict[str, Any]:
        """Return the fields of a message by their names. One that is not set is None."""
        found = {name: getattr(message, name) for name in self._always}
        for name in self._optional:
            found[name] = getattr(message, name) if message.HasField(name) else None
        return found
