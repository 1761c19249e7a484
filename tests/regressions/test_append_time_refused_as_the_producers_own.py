"""LogAppendTime and a codec of the topic's: the first batch was stamped, the second had to be made anew, and
then the log refused its own stamp."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.records.layout import Codec, TimestampType
from stratalog.records.scan import STRICT, scan_batches
from tests.storage.logs import T, batch, log_bytes, open_log, values

CONFIGS = {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"}


@pytest.mark.parametrize(
    "codecs",
    [(Codec.GZIP, Codec.NONE), (Codec.NONE, Codec.GZIP), (Codec.GZIP, Codec.GZIP, Codec.LZ4)],
)
def test_batches_of_any_codecs_are_stamped_and_packed(
    tmp_path: Path, codecs: tuple[Codec, ...]
) -> None:
    log = open_log(tmp_path, CONFIGS)
    data = b"".join(batch(b"v" * 100, timestamp=5, codec=codec) for codec in codecs)
    assert log.append(data).append_time == T
    found = list(scan_batches(log_bytes(log), check=STRICT))
    assert [(each.codec, each.timestamp_type, each.max_timestamp) for each in found] == [
        (Codec.GZIP, TimestampType.APPEND_TIME, T)
    ] * len(codecs)
    assert values(log) == [b"v" * 100] * len(codecs)
    log.close()
