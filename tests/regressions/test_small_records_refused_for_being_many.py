"""A batch that fits as it is built may not fit as the topic's own codec packs it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import stratalog


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
@pytest.mark.parametrize("size", [900, 1400])
def test_the_codec_of_the_topic_leaves_room_too(tmp_path: Path, codec: str, size: int) -> None:
    source = random.Random(1)
    records = [source.randbytes(size) for _ in range(100)]
    configs = {"max.message.bytes": 61 + (size + 11) * 10 + 3, "compression.type": codec}
    with stratalog.open(str(tmp_path), sync=False) as logs:
        logs.create("t", 1, configs)
        logs.append("t", records)
        assert [record.value for record in logs.read("t").records()] == records
