"""The data source: what Spark makes of ``format("stratalog")``.

Spark makes an instance in a Python process of its own on the driver, and asks it for readers and writers.
Whatever is wrong with the options is said here, before any task runs.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from stratalog.spark.options.columns import check_schema, column_names, spark_schema
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.options.table_options import options_of_schema, with_table_options
from stratalog.spark.worker.errors import without_traceback

if TYPE_CHECKING:
    from stratalog.spark.read.batch_reader import BatchReader
    from stratalog.spark.read.stream_reader import StreamReader
    from stratalog.spark.write.sink import BatchSink, StreamSink

__all__ = ["StratalogSource"]


class StratalogSource(DataSource):
    """Log directories as tables and streams, by the options of Spark's Kafka source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given: Mapping[str, str] = {str(name): str(options[name]) for name in options}

    @classmethod
    def name(cls) -> str:
        return "stratalog"

    @without_traceback
    def schema(self) -> StructType:
        return with_table_options(spark_schema(column_names(self._given)), self._given)

    @without_traceback
    def reader(self, schema: StructType) -> BatchReader:
        from stratalog.spark.read.batch_reader import BatchReader

        options = ReadOptions.of(options_of_schema(self._given, schema), is_stream=False)
        return BatchReader(options, check_schema(schema))

    @without_traceback
    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        from stratalog.spark.read.stream_reader import StreamReader

        options = ReadOptions.of(options_of_schema(self._given, schema), is_stream=True)
        return StreamReader(options, check_schema(schema))

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        from stratalog.spark.write.sink import BatchSink

        return BatchSink.of(options_of_schema(self._given, schema), schema, is_overwrite=overwrite)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802
        from stratalog.spark.write.sink import StreamSink

        return StreamSink.of(options_of_schema(self._given, schema), schema, is_overwrite=overwrite)
