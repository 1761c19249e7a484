"""What docs/guides/spark.md shows is what happens."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import stratalog
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


def test_first_screen_of_the_readme_is_true(spark, tmp_path):
    """Its first two blocks, one after the other, with paths in a folder of their own: Spark's processes were
    started elsewhere."""
    text = (GUIDE.parents[2] / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[:2]
    names: dict[str, object] = {}
    for block in blocks:
        exec(re.sub(r'"(logs|louder|checkpoint)"', rf'"{tmp_path}/\1"', block), names)
    query = names["query"]
    assert query.awaitTermination(120)  # type: ignore[attr-defined]
    with stratalog.open(f"{tmp_path}/louder", read_only=True) as logs:
        found = sorted((record.key, record.value) for record in logs.read("loud").records())
    once = [(b"ada", b"1 APPLE"), (b"bob", b"2 PEARS"), (b"eve", b"3 PLUMS")]
    assert found == sorted(2 * once), "the orders, and their copy"
