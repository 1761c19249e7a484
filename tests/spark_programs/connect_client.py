"""A client of Spark Connect that was told nothing of us: the source must be found by itself.

``python -m tests.spark_programs.connect_client FOLDER``; the last line says in JSON what it found.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(folder: str) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    from stratalog.spark.session import CONFIGS

    builder = SparkSession.builder.remote("local[2]")
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

    stream = spark.readStream.format("stratalog").option("startingOffsets", "earliest").load(logs)
    sink = stream.select("key", "value").writeStream.format("stratalog").option("topic", "copy")
    sink = sink.option("checkpointLocation", f"{folder}/checkpoint")
    query = sink.trigger(availableNow=True).start(f"{folder}/copy")
    query.awaitTermination(120)
    found["streamed"] = spark.read.format("stratalog").load(f"{folder}/copy").count()

    spark.conf.set("spark.sql.connect.serverStacktrace.enabled", "false")  # Spark's own, behind it
    try:
        spark.read.format("stratalog").option("subscribe", "nope").load(logs).count()
    except Exception as error:  # noqa: BLE001 - it is what is looked at
        found["error"] = str(error)
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
