"""Every header bit that no CRC covers, flipped: a read by Spark gives the right rows or a typed error."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.header_bits import ROOT, Flip, sound_log

BITS = 17 * 8


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_no_header_bit_loses_rows_in_silence(spark, tmp_path, record_property):
    """In the first, a middle and the last batch of the last segment, read in several tasks."""
    sound = sound_log("v2")
    for path in sound.disk.paths():
        copy = Path(f"{tmp_path}/{path.removeprefix(ROOT)}")
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(sound.disk.read_bytes(path))
    seen: Counter[str] = Counter()
    for batch in sound.chosen()[3:]:
        file = Path(f"{tmp_path}/{batch.path.removeprefix(ROOT)}")
        intact = file.read_bytes()
        for flip in (Flip(batch, bit) for bit in range(BITS)):
            file.write_bytes(flip.apply(sound.disk).read_bytes(batch.path))
            seen[_outcome(spark, tmp_path, flip, list(sound.rows))] += 1
        file.write_bytes(intact)
    assert seen.keys() >= {"right", "error"}
    for outcome, count in seen.items():
        record_property(f"counted: flipped header bits, Spark: {outcome}", count)


def _outcome(spark, folder, flip, wanted):
    from pyspark.errors import PySparkException

    frame = spark.read.format("stratalog").options(minPartitions=3, columns="offset,value")
    try:
        rows = [(row.offset, bytes(row.value)) for row in frame.load(str(folder)).collect()]
    except PySparkException as error:
        if re.search(r"stratalog\.errors\.(Corruption|LimitExceeded)Error: ", str(error)):
            return "error"
        raise
    if sorted(rows) == wanted:
        return "right"
    raise AssertionError(f"{flip}: other rows")
