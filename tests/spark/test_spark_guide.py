"""What docs/guides/spark.md shows is what happens."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.spark.columns import COLUMNS
from stratalog.spark.option_names import KAFKA_OPTIONS, OWN_OPTIONS, SINK_OPTIONS
from tests.peers.golden import golden_set

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]

GUIDE = Path(__file__).parents[2] / "docs/guides/spark.md"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 on loopback with a backup in it."""
    pytest.importorskip("moto")
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = fs.S3FileSystem(
            endpoint_override=f"{host}:{port}",
            scheme="http",
            region="us-east-1",
            access_key="nobody",
            secret_key="nothing",
            allow_bucket_creation=True,
        )
        store.create_dir("backup")
        folder = golden_set("v2-plain").path
        for path in folder.rglob("*"):
            if path.is_file() and path.parent != folder:
                with store.open_output_stream(f"backup/logs/{path.relative_to(folder)}") as out:
                    out.write(path.read_bytes())
        yield f"{host}:{port}"
    finally:
        server.stop()


def test_every_block_of_the_spark_guide_is_true(spark, endpoint):
    results = doctest.testfile(
        str(GUIDE),
        module_relative=False,
        optionflags=doctest.ELLIPSIS,
        globs={"endpoint": endpoint},
    )
    assert results.attempted > 40
    assert results.failed == 0


def test_every_option_and_column_is_in_the_guide():
    text = GUIDE.read_text()
    named = set(re.findall(r"`(\w+)`", text))
    idle = {"path", "paths", "queryName", "includeHeaders"}
    assert {*KAFKA_OPTIONS, *OWN_OPTIONS, *SINK_OPTIONS} - named - idle == set()
    shown = set(re.findall(r"\|-- (\w+):", text))
    assert set(COLUMNS) - named - shown == set()


def test_first_screen_of_the_readme_is_true(spark, tmp_path, monkeypatch):
    """Its first two blocks, one after the other, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    text = (GUIDE.parents[2] / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[:2]
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    query = names["query"]
    assert query.awaitTermination(120)  # type: ignore[attr-defined]
    counted = {
        (row.topic, row.key): int(row.value)
        for row in spark.read.format("stratalog")
        .load("counts")
        .selectExpr("topic", "cast(key as string) as key", "cast(value as string) as value")
        .collect()
    }
    assert set(counted.values()) == {2}, "each customer has an order, and a copy of it"
    assert {name for _, name in counted} == {"ada", "bob", "eve"}
