"""What a round says that it wrote."""

from __future__ import annotations

from fluss_tiering.lake.protocol import FileContent, FileMetrics, LakeFile, LakeTableSize, VectorPlace
from fluss_tiering.model.tiering import MAX_PARTITIONS, TieringStats
from fluss_tiering.spark.round.result import PieceResult, StageSeconds, total_stats


def test_a_puffin_file_counts_once_however_many_vectors_it_has():
    data = LakeFile(FileContent.DATA, 0, "file:/data", 500, FileMetrics(5))
    vectors = [
        LakeFile(FileContent.POSITION_DELETES, 0, "file:/puffin", 70, FileMetrics(1), vector=VectorPlace(at, 30))
        for at in (4, 34)
    ]
    pieces = [
        PieceResult(0, 10, (data, *vectors), StageSeconds(), 0),
        PieceResult(1, 3, (LakeFile(FileContent.DATA, 1, "file:/more", 9, FileMetrics(3)),), StageSeconds(), 0),
    ]
    size = LakeTableSize(1000, 8)
    expected = TieringStats(13, 500 + 70 + 9, 3, 77, partitions=("mon", "tue"))
    assert total_stats(pieces, {"tue", "mon"}, 77, size) == expected
    many = {str(number) for number in range(MAX_PARTITIONS + 1)}
    assert total_stats(pieces, many, 77, size).partitions == ()
