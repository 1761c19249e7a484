"""examples/pipeline, as ``spark-pipelines run`` runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stratalog

pytest.importorskip("pyspark")
for needed in ("grpc", "grpc_status", "yaml", "google.rpc"):
    pytest.importorskip(needed, reason="needs pip install 'stratalog[pipelines]'")

pytestmark = pytest.mark.proof  # it starts Spark Connect and a pipeline

PIPELINE = Path(__file__).parents[2] / "examples/pipeline"
PLACE = "/tmp/stratalog-clickstream"


def test_pipeline_puts_every_session_into_the_table_and_the_log(tmp_path):
    from examples import clickstream

    shutil.copytree(PIPELINE, tmp_path / "pipeline")
    for name in ("spark-pipeline.yml", "conf/spark-defaults.conf"):
        path = tmp_path / "pipeline" / name
        text = path.read_text()
        assert PLACE in text
        path.write_text(text.replace(PLACE, str(tmp_path)))
    clickstream.generate(tmp_path / "logs", 50, 2)
    ran = subprocess.run(
        [Path(sys.executable).with_name("spark-pipelines"), "run"],
        cwd=tmp_path / "pipeline",
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(tmp_path / "pipeline/conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    assert "Run is COMPLETED" in ran.stdout + ran.stderr
    with stratalog.open(str(tmp_path / "logs"), read_only=True) as opened:
        found = [
            (record.key.decode(), record.timestamp, json.loads(record.value)["clicks"])
            for record in opened.read("sessions").records()
            if record.key is not None and record.value is not None
        ]
    expected = clickstream.finished_sessions(50, 2)
    assert sorted(found) == sorted((each.user, each.last_ms, each.clicks) for each in expected)
    assert list((tmp_path / "warehouse/sessions_by_date").glob("*.parquet"))
