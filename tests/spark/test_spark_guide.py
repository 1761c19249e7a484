"""What docs/guides/spark.md shows is what happens."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import stratalog
from stratalog.spark.options.columns import COLUMNS
from stratalog.spark.options.option_names import KAFKA_OPTIONS, OWN_OPTIONS, SINK_OPTIONS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]

GUIDE = Path(__file__).parents[2] / "docs/guides/spark.md"


@pytest.mark.proof
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
    """Its first two blocks, run twice, with paths in a folder of their own: Spark's processes were started
    elsewhere. As printed they are run by test_readme."""
    text = (GUIDE.parents[2] / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[:2]
    for _ in range(2):
        for block in blocks:
            exec(re.sub(r'"(logs|louder|checkpoint)"', rf'"{tmp_path}/\1"', block), {})
    once = [(b"ada", b"1 apple"), (b"bob", b"2 pears"), (b"eve", b"3 plums")]

    def found(folder: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        with stratalog.open(f"{tmp_path}/{folder}", read_only=True) as logs:
            return sorted((record.key, record.value) for record in logs.read(topic).records())

    assert found("logs", "orders") == sorted(2 * once), "each run appends them"
    assert found("logs", "copy") == once, "version 1, once"
    assert found("louder", "loud") == sorted(2 * [(k, v.upper()) for k, v in once])
