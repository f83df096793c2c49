"""Writes pieces that delete rows by position: the key index says where the rows of the changed keys are."""

from fluss_tiering.lake.iceberg.by_position.place_index import look_at_folder
from fluss_tiering.lake.iceberg.by_position.writer import PositionFileWriter

__all__ = ["PositionFileWriter", "look_at_folder"]
