"""A Spark session with what our pipelines need already set, and the registration of the data source."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Final

from stratalog.errors import UsageError
from stratalog.spark.java import java_home
from stratalog.spark.masters import check_master, naming_master
from stratalog.spark.worker.python import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CONFIGS", "register", "session", "session_class", "session_configs"]

#: What a session gets where the caller says nothing else.
CONFIGS: Final = {
    # Nothing is offered to the network.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Rows go between Java and Python without a TCP stack: a task costs a third less.
    "spark.python.unix.domain.socket.enabled": "true",
    # With a limit, Spark measures the whole batch anew for every row, which is quadratic where headers are
    # null; so the rows of a batch are limited instead.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.session.timeZone": "UTC",
    # A crash in compiled code tells where it happened.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.streaming.metricsEnabled": "false",
}

#: Said by Spark at every start, and true of every start.
_LOG_LEVEL: Final = "ERROR"
_LOG_FILE: Final = "log4j2.configurationFile"
#: PySpark's own, for errors that it raises as well.
_ERROR_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"
#: Spark looks at every value of an Arrow batch by its row, which is below the batch's count; Arrow would
#: check it once more, against the buffer and its owner, and takes a fifth of a scan for it.
_ARROW_OPTION: Final = "-Darrow.enable_unsafe_memory_access=true"


def session(
    name: str = "stratalog",
    *,
    master: str | None = None,
    configs: dict[str, str] | None = None,
) -> SparkSession:
    """A Spark session that reads and writes logs: the one that is there, or a local one of its own.

    It listens on loopback only, its workers run this Python, and the data source is registered.
    ``master`` names a cluster (``spark://host:7077``, ``local-cluster[2,1,1024]``); StorageError where it
    does not answer. ``configs`` win over ours. Java is found or brought (see ``stratalog.spark.java``).
    """
    sessions = session_class()
    active = sessions.getActiveSession()
    if active is None:
        if master is not None:
            check_master(master)
        home = java_home()
        if home is not None:
            os.environ["JAVA_HOME"] = home
        # A worker otherwise runs whichever python3 comes first, which may know nothing of us.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = sessions.builder.appName(name).master(master or "local[*]")
        for key, value in session_configs(configs or {}).items():
            builder = builder.config(key, value)
        with naming_master(master):
            active = builder.getOrCreate()
            active.sparkContext.setLogLevel(_LOG_LEVEL)
    _hush()
    register(active)
    return active


def session_class() -> type[SparkSession]:
    """PySpark's own; UsageError where it is not installed."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise UsageError("PySpark is not installed: pip install 'stratalog[spark]'") from None
    return SparkSession


def _hush() -> None:
    """An error is raised, and says all that there is to say: PySpark prints it before, with all the frames of
    Java. Who has given its loggers a level of their own keeps it."""
    from pyspark.logger import PySparkLogger

    for name in _ERROR_LOGGERS:
        logger = PySparkLogger.getLogger(name)
        if logger.level in (logging.NOTSET, logging.WARNING):  # as they are made
            logger.setLevel(logging.CRITICAL)


def session_configs(configs: dict[str, str]) -> dict[str, str]:
    """What a session is started with: ours, and the caller's in their place. Options for Java go together,
    the caller's behind ours: Java takes the last of two that say the same.

    Spark's own logging is off by a file, and so from its very first line on, before any session has a level;
    unless the caller names such a file.
    """
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quiet-log4j2.properties")
    driver, executor = configs.get(_DRIVER_OPTIONS, ""), configs.get(_EXECUTOR_OPTIONS, "")
    quiet = "" if _LOG_FILE in driver else f"-D{_LOG_FILE}=file:{path}"
    return {
        **CONFIGS,
        **configs,
        _DRIVER_OPTIONS: " ".join(filter(None, (quiet, _ARROW_OPTION, driver))),
        _EXECUTOR_OPTIONS: " ".join(filter(None, (_ARROW_OPTION, executor))),
    }


def register(spark: SparkSession) -> None:
    """Let ``spark.read.format("stratalog")`` and its siblings work in this session. Sessions of Spark find
    the source by themselves where the Python of their workers has the package (``pyspark_stratalog``). Where
    it does not, as in a virtual environment that is not activated, a local session is given this Python;
    UsageError names ``PYSPARK_PYTHON`` where that cannot be done."""
    from stratalog.spark.source import StratalogSource

    use_this_python(spark)
    spark.dataSource.register(StratalogSource)
