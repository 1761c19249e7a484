"""Spark looks for packages named ``pyspark_*`` and registers what they call ``DefaultSource``."""

from stratalog.spark.source import StratalogSource as DefaultSource

__all__ = ["DefaultSource"]
