"""The Spark session of the tests of ``stratalog.spark``: one is enough for a process."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
