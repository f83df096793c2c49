"""Generated messages: fields with plain, extreme and broken values, and with what earlier answers held."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

_KEPT: Final = 40
_DEPTH: Final = 4
_INTEGERS: Final = (0, 1, -1, 2, 7, 100, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))
_STRINGS: Final = (
    "",
    " ",
    "a",
    "db",
    "t",
    "new_table",
    "true",
    "10min",
    "-5 s",
    "__hidden",
    "../../etc/passwd",
    "a.b.c",
    "'; DROP TABLE tiering_rounds; --",
    "{}%s%n",
    "nul\0inside",
    "naïve ☕ 𝄞",
    "x" * 201,
    "y" * 70_000,
)
_INTEGER_BITS: Final = {
    FieldDescriptor.TYPE_INT32: (31, True),
    FieldDescriptor.TYPE_SINT32: (31, True),
    FieldDescriptor.TYPE_SFIXED32: (31, True),
    FieldDescriptor.TYPE_UINT32: (32, False),
    FieldDescriptor.TYPE_FIXED32: (32, False),
    FieldDescriptor.TYPE_INT64: (63, True),
    FieldDescriptor.TYPE_SINT64: (63, True),
    FieldDescriptor.TYPE_SFIXED64: (63, True),
    FieldDescriptor.TYPE_UINT64: (64, False),
    FieldDescriptor.TYPE_FIXED64: (64, False),
}


class Memory:
    """Values of earlier requests and answers, by the name of their field and by their type, so that ids fit later."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._values: dict[str, list[Any]] = {}

    def learn(self, message: Message) -> None:
        """Remembers all parts of a message."""
        self._remember(message.DESCRIPTOR.full_name, message)
        for field, value in message.ListFields():
            if _is_map(field):
                entry = field.message_type.fields_by_name
                for key, each in value.items():
                    self._remember(name_of(entry["key"]), key)
                    self._remember(name_of(entry["value"]), each)
                continue
            for each in _values_of(field, value):
                if isinstance(each, Message):
                    self.learn(each)
                else:
                    self._remember(name_of(field), each)

    def recall(self, name: str) -> Any:
        """One of the values of that name, or None."""
        values = self._values.get(name)
        return self._chance.choice(values) if values else None

    def _remember(self, name: str, value: Any) -> None:
        values = self._values.setdefault(name, [])
        if value in values:
            return
        if len(values) < _KEPT:
            values.append(value)
        else:
            values[self._chance.randrange(_KEPT)] = value


class Generator:
    """Makes messages of any type."""

    def __init__(self, chance: random.Random, memory: Memory) -> None:
        self._chance = chance
        self._memory = memory

    def message(self, descriptor: Descriptor, depth: int = 0) -> Message:
        """A message; most fields fit each other, since they come from the same answers."""
        known = self._memory.recall(descriptor.full_name)
        if known is not None and self._chance.random() < 0.5:
            message: Message = type(known)()
            message.CopyFrom(known)
            if self._chance.random() < 0.5:
                return message
        else:
            message = message_factory.GetMessageClass(descriptor)()
        # A message that is made anew has most of its fields; one that is recalled gets one or two others.
        share = 0.85 if not message.ListFields() else 0.15
        for field in descriptor.fields:
            if self._chance.random() < share:
                self._set(message, field, depth)
        return message

    def encoded(self, descriptor: Descriptor) -> bytes:
        """A message's bytes, now and then broken."""
        encoded = bytearray(self.message(descriptor).SerializeToString())
        broken = self._chance.random()
        if broken < 0.04:
            return self._chance.randbytes(self._chance.choice((1, 7, 200, 5_000)))
        if broken < 0.08:
            return bytes(encoded[: self._chance.randrange(len(encoded) + 1)])
        if broken < 0.12 and encoded:
            encoded[self._chance.randrange(len(encoded))] = self._chance.randrange(256)
        elif broken < 0.16:
            # A field that nobody knows: number 1000, length-delimited.
            encoded += b"\xc2\x3e\x05extra"
        return bytes(encoded)

    def _set(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        if _is_map(field):
            entry = field.message_type.fields_by_name
            for _ in range(self._chance.choice((0, 1, 3))):
                getattr(message, field.name)[self._scalar(entry["key"])] = self._scalar(entry["value"])
        elif field.is_repeated:
            for _ in range(self._chance.choice((0, 1, 1, 1, 2, 5))):
                if field.message_type is None:
                    getattr(message, field.name).append(self._scalar(field))
                elif depth < _DEPTH:
                    getattr(message, field.name).add().CopyFrom(self.message(field.message_type, depth + 1))
        elif field.message_type is None:
            setattr(message, field.name, self._scalar(field))
        elif depth < _DEPTH:
            getattr(message, field.name).CopyFrom(self.message(field.message_type, depth + 1))

    def _scalar(self, field: FieldDescriptor) -> Any:
        known = self._memory.recall(name_of(field))
        if known is not None and self._chance.random() < 0.7:
            return self._altered(known) if self._chance.random() < 0.1 else known
        if field.type in _INTEGER_BITS:
            bits, signed = _INTEGER_BITS[field.type]
            value = self._chance.choice(_INTEGERS)
            return max(-(1 << bits) if signed else 0, min(value, (1 << bits) - 1))
        match field.type:
            case FieldDescriptor.TYPE_BOOL:
                return self._chance.random() < 0.5
            case FieldDescriptor.TYPE_STRING:
                return self._chance.choice(_STRINGS)
            case FieldDescriptor.TYPE_BYTES:
                return self._chance.randbytes(self._chance.choice((0, 1, 16, 3_000)))
            case FieldDescriptor.TYPE_ENUM:
                return self._chance.choice([*field.enum_type.values_by_number, 77])
        return self._chance.choice((0.0, -1.5, float("inf"), float("nan")))

    def _altered(self, value: Any) -> Any:
        match value:
            case bool():
                return not value
            case int():
                return value - 1 if value > 0 else value + 1
            case str():
                return value[:-1]
            case bytes() if value:
                kept = value[: self._chance.randrange(len(value))]
                return kept if self._chance.random() < 0.5 else kept + b"\xff" + value[len(kept) + 1 :]
        return value


def name_of(field: FieldDescriptor) -> str:
    """What values of a field are remembered by: fields of one name and type mean the same in this API."""
    return f"{field.name.removeprefix('next_')}:{field.type}"


def strings_of(message: Message) -> Iterator[str]:
    """All texts in a message."""
    for field, value in message.ListFields():
        for each in _values_of(field, value):
            if isinstance(each, Message):
                yield from strings_of(each)
            elif isinstance(each, str):
                yield each


def parts_of(message: Message, full_name: str) -> Iterator[Any]:
    """All parts of a message that are of one type."""
    if message.DESCRIPTOR.full_name == full_name:
        yield message
    for field, value in message.ListFields():
        for each in _values_of(field, value):
            if isinstance(each, Message):
                yield from parts_of(each, full_name)


def _values_of(field: FieldDescriptor, value: Any) -> list[Any]:
    if _is_map(field):
        return [*value.keys(), *value.values()]
    return list(value) if field.is_repeated else [value]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
