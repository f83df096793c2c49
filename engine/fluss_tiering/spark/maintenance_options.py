"""The options of the maintenance application, one dataclass for each of its commands (see `command_line`).

This module imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, Final, TypeAlias

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.units import parse_duration_ms
from fluss_tiering.spark.command_line import MOST_COUNT, WORTH_REWRITING, about, add_arguments, check_options

DEFAULT_MIN_INPUT_FILES: Final = 5
DEFAULT_DELETE_FILES: Final = 1
DEFAULT_LIMIT: Final = 20
DEFAULT_MAX_BYTES: Final = "10gb"
DEFAULT_CORES: Final = 1
DEFAULT_MANY_DELETE_FILES: Final = 5
"""Each round of a primary-key table adds delete files. To rewrite its files after each round would cost too much."""
_MIN_INPUT_FILES: Final = about(
    "--min-input-files",
    "The smallest number of small files in a bucket that is worth rewriting.",
    least=2,
    most=MOST_COUNT,
)
_DELETE_FILES: Final = about(
    "--delete-files",
    "Rewrite a data file of any size if at least this many delete files apply to it.",
    least=1,
    most=MOST_COUNT,
)


@dataclass(frozen=True, slots=True)
class _Options:
    """A command and its tables.

    Attributes:
        tables: The tables, each once. There is at least one.
    """

    command: ClassVar[str]

    server: str = field(metadata=about("--server", "The tiering server.", metavar="[ID@]HOST:PORT"))
    tables: tuple[TablePath, ...]

    def __post_init__(self) -> None:
        """Refuse wrong values with INVALID_REQUEST."""
        check_options(self)


@dataclass(frozen=True, slots=True)
class CompactOptions(_Options):
    """Which lake tables to compact, and which of their files."""

    command = "compact"

    min_input_files: int = field(default=DEFAULT_MIN_INPUT_FILES, metadata=_MIN_INPUT_FILES)
    delete_files: int = field(default=DEFAULT_DELETE_FILES, metadata=_DELETE_FILES)


@dataclass(frozen=True, slots=True)
class ExpireOptions(_Options):
    """Which lake tables lose old snapshots, and which of them."""

    command = "expire"

    older_than: str | None = field(
        default=None,
        metadata=about(
            "--older-than",
            "The minimum age of a snapshot, for example 2d. The default comes from the properties of the lake table "
            "(5d).",
            metavar="DURATION",
            check=parse_duration_ms,
        ),
    )
    retain_last: int | None = field(
        default=None,
        metadata=about(
            "--retain-last",
            "The number of newest snapshots to keep at any age. The default comes from the properties of the lake "
            "table (1).",
            least=1,
            most=MOST_COUNT,
        ),
    )

    @property
    def age(self) -> timedelta | None:
        """The minimum age of a snapshot; None for what the properties of the lake table say."""
        return _age(self.older_than)


@dataclass(frozen=True, slots=True)
class VerifyOptions(_Options):
    """Which lake tables to compare with their tables."""

    command = "verify"

    limit: int = field(
        default=DEFAULT_LIMIT,
        metadata=about(
            "--limit", "The maximum number of differing keys of each table to list.", least=1, most=MOST_COUNT
        ),
    )
    newer_than: str | None = field(
        default=None,
        metadata=about(
            "--newer-than",
            "Compare only the rows that newer rounds than this, for example 2d, have added to a log table. The default "
            "compares all rows.",
            metavar="DURATION",
            check=parse_duration_ms,
        ),
    )

    @property
    def age(self) -> timedelta | None:
        """The age of rounds whose rows are not compared; None to compare all rows."""
        return _age(self.newer_than)


@dataclass(frozen=True, slots=True)
class MaintainOptions(_Options):
    """Which lake tables to maintain, and how much of it is done at once.

    Attributes:
        tables: The tables, each once. Without tables, these are the ones whose options ask for maintenance.
    """

    command = "maintain"

    all_tables: bool = field(
        default=False,
        metadata=about("--all", "Maintain all tables that are tiered, whatever their options say."),
    )
    dry_run: bool = field(
        default=False, metadata=about("--dry-run", "Only say what would be done, and change nothing.")
    )
    max_bytes: str = field(
        default=DEFAULT_MAX_BYTES,
        metadata=about(
            "--max-bytes",
            "The largest size of the data files of a table that are rewritten in this run, at least 1mb. Files whose "
            "rewrite saves most are rewritten first.",
            metavar="SIZE",
            check=WORTH_REWRITING,
        ),
    )
    cores: int = field(
        default=DEFAULT_CORES,
        metadata=about(
            "--cores", "About how many tasks rewrite data files at the same time.", least=1, most=MOST_COUNT
        ),
    )
    min_input_files: int = field(default=DEFAULT_MIN_INPUT_FILES, metadata=_MIN_INPUT_FILES)
    delete_files: int = field(default=DEFAULT_MANY_DELETE_FILES, metadata=_DELETE_FILES)

    def __post_init__(self) -> None:
        """Refuse wrong values, and --all beside names, with INVALID_REQUEST."""
        check_options(self)
        if self.all_tables and self.tables:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"--all maintains every table that is tiered, but {', '.join(map(str, self.tables))} is named, too: "
                "leave out --all or the names",
            )


@dataclass(frozen=True, slots=True)
class PublishOptions(_Options):
    """Of which lake tables the main branch moves forward, and to which snapshot."""

    command = "publish"

    snapshot: int | None = field(
        default=None,
        metadata=about(
            "--snapshot",
            "The snapshot of the branch to publish: the one that was checked. The default is the newest one, whether "
            "it was checked or not.",
            metavar="ID",
            least=1,
            most=(1 << 63) - 1,
        ),
    )
    tag: str | None = field(
        default=None,
        metadata=about("--tag", "A tag for the snapshot, which keeps it from being expired.", metavar="NAME"),
    )

    def __post_init__(self) -> None:
        """Refuse wrong values, and a snapshot of several tables, with INVALID_REQUEST."""
        check_options(self)
        if self.snapshot is not None and len(self.tables) > 1:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                f"--snapshot {self.snapshot} is a snapshot of one lake table, but {', '.join(map(str, self.tables))} "
                "are named: publish them one by one, or leave it out",
            )


MaintenanceOptions: TypeAlias = MaintainOptions | CompactOptions | ExpireOptions | VerifyOptions | PublishOptions

_COMMANDS: Final[dict[type[MaintenanceOptions], str]] = {
    MaintainOptions: "Do what is worth doing of all maintenance of lake tables.",
    CompactOptions: "Rewrite small files, and files whose rows were deleted or changed.",
    ExpireOptions: "Remove old snapshots, and the files that only those refer to.",
    VerifyOptions: "Compare lake tables with their source tables.",
    PublishOptions: "Let the readers of main see what rounds have committed to another branch.",
}


def _age(text: str | None) -> timedelta | None:
    return None if text is None else timedelta(milliseconds=parse_duration_ms(text))


def parse_arguments(arguments: Sequence[str]) -> MaintenanceOptions:
    """Return the options on a command line; wrong ones end the process with exit code 2."""
    parser = argparse.ArgumentParser(
        prog="maintenance_application.py", description="Maintain the lake tables of Apache Fluss."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    kinds = {}
    for kind, text in _COMMANDS.items():
        kinds[kind.command] = kind
        add_arguments(
            commands.add_parser(kind.command, help=text, description=text),
            kind,
            tables="*" if kind is MaintainOptions else "+",
        )
    values = vars(parser.parse_args(arguments))
    kind = kinds[values.pop("command")]
    values["tables"] = tuple(dict.fromkeys(values["tables"]))
    try:
        return kind(**values)
    except FlussTieringError as error:
        parser.error(error.message)
