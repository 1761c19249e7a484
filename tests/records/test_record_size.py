"""A record is never larger in a batch than its estimate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stratalog.records.builder import build_batch, record_size_max
from stratalog.records.layout import BATCH_HEADER_SIZE, INT32_MAX, INT64_MAX
from stratalog.records.model import Record, RecordHeader

contents = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=40), contents), max_size=20)


@given(key=contents, value=contents, headers=headers, time=st.integers(0, INT64_MAX))
def test_estimate_is_not_below_the_encoded_size(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], time: int
) -> None:
    first = Record(offset=0, timestamp=0, value=b"")
    last = Record(
        offset=INT32_MAX,
        timestamp=time,
        key=key,
        value=value,
        headers=tuple(RecordHeader(*each) for each in headers),
    )
    alone = len(build_batch([first])) - BATCH_HEADER_SIZE
    both = len(build_batch([first, last])) - BATCH_HEADER_SIZE
    assert both - alone <= record_size_max(key, value, headers)
