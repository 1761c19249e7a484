"""Which Python the workers of a session run, and whether it has this package.

Workers run ``PYSPARK_PYTHON``, else the first ``python3`` on the path: in a virtual environment that is not
activated, another one. It does not find the data source, and Spark says ``stratalog.DefaultSource`` is no
class.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

from stratalog.errors import UsageError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["has_package", "use_this_python"]

_VARIABLE: Final = "PYSPARK_PYTHON"
_PATIENCE_SECONDS: Final = 60


def use_this_python(spark: SparkSession) -> None:
    """Let the workers of a local session run this Python where theirs does not have the package. UsageError
    on a cluster, whose machines may have other paths, and where a variable or setting chose their Python.

    Through Spark Connect nothing is done: the server's Python is not known here.
    """
    context: SparkContext | None = getattr(spark, "_sc", None)
    if context is None or has_package(context.pythonExec):
        return
    is_local = (context.master or "").startswith("local")
    if _is_chosen(context) or not is_local:
        raise UsageError(
            f"the Python of Spark's workers, {context.pythonExec}, does not have stratalog: set "
            f"{_VARIABLE} to one that does, before the session starts (here it is {sys.executable})"
        )
    context.pythonExec = sys.executable


def _is_chosen(context: SparkContext) -> bool:
    return _VARIABLE in os.environ or context.getConf().contains("spark.pyspark.python")


@cache
def has_package(python: str) -> bool:
    """Whether this command starts a Python that can import the package. Not asked of our own."""
    found = shutil.which(python)
    if found is None:
        return False
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return True
    done = subprocess.run(
        [found, "-c", "import stratalog.spark.source"],
        capture_output=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    return done.returncode == 0
