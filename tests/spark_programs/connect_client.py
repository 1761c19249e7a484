"""A client of Spark Connect that was told nothing of us: the source must be found by itself.

``python -m tests.spark_programs.connect_client FOLDER``; the last line says in JSON what it found.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any


def use_free_port() -> int:
    """Choose a port that no server has, and let the client connect to it: two runs on one machine must not
    meet at Spark's own, 15002. The client of a local server has no option for it."""
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        port: int = some.getsockname()[1]
    DefaultChannelBuilder.default_port = staticmethod(lambda: port)  # type: ignore[method-assign]
    return port


def main(folder: str) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    from stratalog.spark import scan
    from stratalog.spark.session import CONFIGS

    builder = SparkSession.builder.remote("local[2]")
    builder = builder.config("spark.connect.grpc.binding.port", str(use_free_port()))
    for name, value in CONFIGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found: dict[str, Any] = {"session": type(spark).__module__}
    logs = f"{folder}/logs"

    frame = spark.range(0, 500, 1, 2).selectExpr(
        "cast(id AS string) AS key", "concat('value ', id) AS value"
    )
    writer = frame.write.format("stratalog").option("topic", "t").option("partitions", 2)
    writer.mode("append").save(logs)
    read = spark.read.format("stratalog").load(logs)
    found["columns"] = read.columns
    found["values"] = sorted(row.value.decode() for row in read.select("value").collect())

    spark.sql(f"CREATE TABLE of_log USING stratalog OPTIONS (path '{logs}', topic 't')")
    spark.sql("INSERT INTO of_log (key, value) VALUES (X'61', X'62')")
    found["counted"] = spark.sql("SELECT count(*) FROM of_log").collect()[0][0]
    spark.sql("DROP TABLE of_log")

    stream = (
        spark.readStream.format("stratalog")
        .option("subscribePattern", ".*")
        .option("startingOffsets", "earliest")
        .load(logs)
    )
    sink = stream.select("key", "value").writeStream.format("stratalog").option("topic", "copy")
    sink = sink.option("checkpointLocation", f"{folder}/checkpoint")
    query = sink.trigger(availableNow=True).start(f"{folder}/copy")
    query.awaitTermination(120)
    found["streamed"] = spark.read.format("stratalog").load(f"{folder}/copy").count()

    found["scanned"] = scan(spark, logs, where="offset < 100", columns=["value"]).count()
    found["conditions"] = read_conditions(spark, logs)
    found["jobs"] = run_jobs(spark, logs, folder)

    spark.conf.set("spark.sql.connect.serverStacktrace.enabled", "false")  # Spark's own, behind it
    try:
        spark.read.format("stratalog").option("subscribe", "nope").load(logs).count()
    except Exception as error:  # noqa: BLE001 - it is what is looked at
        found["error"] = str(error)
    spark.stop()
    return found


def read_conditions(spark: Any, logs: str) -> list[dict[str, Any]]:
    """Conditions as texts and as Columns: what is left of the offsets, and how many rows pass."""
    from pyspark.sql import functions as sf

    from stratalog.spark import scan
    from stratalog.spark.pushdown.connect_condition import condition_of

    whole = spark.read.format("stratalog").load(logs)
    first = whole.agg(sf.min("timestamp")).first()[0]
    conditions = [
        "offset >= 10 AND offset < 20 AND topic = 't'",
        (sf.col("offset") >= 10) & (sf.lit(20) > sf.col("offset")) & (sf.col("topic") == "t"),
        sf.expr("offset between 10 and 19 and topic = 't'"),
        sf.col("offset").between(10, 19) & sf.col("topic").isin("t", "nothing"),
        (sf.col("offset") >= 10) & (sf.col("offset") < 20) & (sf.length("value") > 1),
        sf.when(sf.col("offset") == 10, True).otherwise(False),
        sf.col("offset").cast("string") == "10",
        sf.col("timestamp") > first,
        f"timestamp > timestamp '{first}'",
    ]
    found = []
    for where in conditions:
        condition = condition_of(spark, where)
        bounds = None if condition is None else condition.pruning
        found.append(
            {
                "offsets": None if bounds is None else [bounds.offsets.low, bounds.offsets.high],
                "times": None if bounds is None else bounds.times_us.low,
                "topics": None if bounds is None else sorted(bounds.topics or ()),
                "columns": None if condition is None else sorted(condition.columns),
                "rows": scan(spark, logs, where=where, columns=["value"]).count(),
                "expected": whole.where(where).count(),
            }
        )
    return found


def run_jobs(spark: Any, logs: str, folder: str) -> dict[str, Any]:
    """Every job, without a context: what each says of the 501 records."""
    from stratalog.spark import jobs

    exported, back = f"{folder}/exported", f"{folder}/back"
    counted = jobs.count(spark, logs).collect()
    verified = jobs.verify(spark, logs).collect()
    found: dict[str, Any] = {
        "count": sum(row.records for row in counted),
        "stat": sum(row.records for row in jobs.stat(spark, logs).collect()),
        "verify": {row.status for row in verified} == {"ok"},
        "export": jobs.export(spark, logs, exported).records,
        "mirror": sum(
            each.records for each in jobs.mirror(spark, logs, f"{folder}/mirrored").partitions
        ),
    }
    checkpoint = f"{folder}/export-checkpoint"
    for name in ("export anew", "export again"):
        report = jobs.export(spark, logs, f"{folder}/incremental", checkpoint=checkpoint)
        found[name] = report.records
    jobs.import_rows(spark, exported, back, topic="t", write_options={"partitions": "2"})
    found["import"] = spark.read.format("stratalog").load(back).count()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
