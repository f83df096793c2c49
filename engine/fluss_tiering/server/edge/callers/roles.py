"""Roles, and the tables that an identity has them for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from fluss_tiering.model.errors import ErrorCode, FlussTieringError


class Role(StrEnum):
    """A role. The protos name the role that each call takes."""

    READER = "reader"
    WRITER = "writer"
    TIERER = "tierer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def included(self) -> frozenset[Role]:
        """The roles whose calls an identity of this role may make, itself included."""
        return _INCLUDED[self]


_INCLUDED: Final = {
    Role.READER: frozenset({Role.READER}),
    Role.WRITER: frozenset({Role.READER, Role.WRITER}),
    Role.TIERER: frozenset({Role.READER, Role.TIERER}),
    Role.OPERATOR: frozenset({Role.READER, Role.TIERER, Role.OPERATOR}),
    Role.ADMIN: frozenset(Role),
}

_PART: Final = r"[A-Za-z0-9_*-]+"
_PATTERN: Final = re.compile(rf"{_PART}\.{_PART}")
ALL_TABLES: Final = "*"


@dataclass(frozen=True, slots=True)
class TablePattern:
    """A pattern of table paths: `*` for all tables, or DATABASE.TABLE, in which `*` stands for any characters.

    Attributes:
        text: The pattern as people write it.
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the pattern that a text stands for.

        Raises:
            FlussTieringError: INVALID_REQUEST if the text is neither `*` nor DATABASE.TABLE.
        """
        if text != ALL_TABLES and not _PATTERN.fullmatch(text):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"{text!r} is not a pattern of tables: expected * for all tables, or DATABASE.TABLE with * for any "
                "characters, for example shop.* or shop.orders_*",
            )
        return cls(text)

    @property
    def regular_expression(self) -> str:
        """The regular expression that matches the path of a table, as it is written, if the pattern stands for it."""
        return ".*" if self.text == ALL_TABLES else re.escape(self.text).replace(r"\*", r"[^.]*")


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for the tables of a pattern."""

    role: Role
    tables: TablePattern

    @classmethod
    def parse(cls, role: str, tables: str = ALL_TABLES) -> Self:
        """Return the grant of a role by its name.

        Raises:
            FlussTieringError: INVALID_REQUEST if there is no such role, or if the pattern is not one.
        """
        if role not in set(Role):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST, f"there is no role {role!r}: expected one of {', '.join(Role)}"
            )
        return cls(Role(role), TablePattern.parse(tables))
