"""How far a stream has come, by its checkpoint, wherever Spark can read that."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from stratalog.errors import CorruptionError
from stratalog.spark.options.offsets import parse_offsets_dict
from stratalog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["offsets_of_checkpoint"]


def offsets_of_checkpoint(spark: SparkSession, checkpoint: str) -> dict[TopicPartition, int]:
    """Up to where a stream from one of our directories has finished its batches; nothing where it has
    none. A batch that was planned and not finished counts for nothing."""
    finished = set(_files(spark, f"{checkpoint.rstrip('/')}/commits"))
    planned = _files(spark, f"{checkpoint.rstrip('/')}/offsets")
    for number in sorted(planned.keys() & finished, reverse=True):
        # A version, the query's settings, then a line for each of its sources.
        lines = planned[number].splitlines()
        try:
            return parse_offsets_dict(json.loads(lines[2]), "the checkpoint")
        except (ValueError, IndexError):
            raise CorruptionError(
                "checkpoint",
                f"batch {number} has no offsets of a log directory",
                path=checkpoint,
                advice="name the checkpoint of an export, or a new one",
            ) from None
    return {}


def _plain(folder: str) -> str:
    """A path that is no pattern, whatever stands in it."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", folder)


def _files(spark: SparkSession, folder: str) -> dict[int, str]:
    """Files that are named by a batch, whole; none where the folder is not there."""
    from pyspark.errors import AnalysisException

    try:
        read = spark.read.format("text").option("wholetext", True).load(_plain(folder))
        rows = read.select("value", "_metadata.file_name").collect()
    except AnalysisException:
        return {}
    return {int(row[1]): str(row[0]) for row in rows if str(row[1]).isdigit()}
