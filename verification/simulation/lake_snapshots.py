"""The snapshots of a lake table in the model of Iceberg, and the newest ones of its branches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fluss_tiering.lake.files import ANY_BUCKET
from simulation.lake_files import LakeFiles


@dataclass(slots=True)
class LakeSnapshotNode:
    """A snapshot of a lake table.

    Attributes:
        files: The live files.
        replaces: Whether it is a compaction, which changes no row.
        removed: The data files that it removes.
        vectors: The data files for which it adds deletion vectors.
    """

    snapshot_id: int
    parent: LakeSnapshotNode | None
    summary: dict[str, str]
    files: LakeFiles
    adds_data: bool = False
    adds_deletes: bool = False
    replaces: bool = False
    removed: frozenset[str] = frozenset()
    vectors: frozenset[str] = frozenset()


@dataclass(slots=True)
class LakeContent:
    """A lake table in the catalog.

    Attributes:
        head: The newest snapshot of the branch that rounds commit to.
        main: The newest snapshot of main, if that is another branch.
        has_branch: Whether it is another one.
        is_clean: Whether the files of all buckets are in one place, as in a clean table without a partition for them.
    """

    name: str
    format_version: int
    head: LakeSnapshotNode | None = None
    main: LakeSnapshotNode | None = None
    has_branch: bool = False
    is_clean: bool = False
    nodes: dict[int, LakeSnapshotNode] = field(default_factory=dict)

    @property
    def files(self) -> LakeFiles:
        """The live files of the newest snapshot."""
        return LakeFiles() if self.head is None else self.head.files

    @property
    def published(self) -> LakeSnapshotNode | None:
        """The newest snapshot of main."""
        return self.main if self.has_branch else self.head

    def place(self, bucket: int) -> int:
        """Return where the files of a bucket are."""
        return ANY_BUCKET if self.is_clean else bucket

    def rows(self, bucket: int) -> dict[int, list[int]]:
        """Return the rows of a bucket as readers see them, as key -> values. More than one is a doubled row."""
        return self.files.bucket(bucket).rows()

    def put(self, node: LakeSnapshotNode) -> None:
        """Make a snapshot the newest one."""
        self.head = self.nodes[node.snapshot_id] = node


def ancestors(node: LakeSnapshotNode | None) -> Iterator[LakeSnapshotNode]:
    """Yield a snapshot and all earlier ones."""
    while node is not None:
        yield node
        node = node.parent


def comes_from(node: LakeSnapshotNode | None, earlier: LakeSnapshotNode) -> bool:
    """Return whether a snapshot is another one, or was built on it."""
    return any(each is earlier for each in ancestors(node))
