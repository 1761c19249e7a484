"""Random logs through every rewrite: records, offsets and timestamps stay, but for what is erased."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.columns import decode_records
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record, RecordHeader
from stratalog.rewrite.erase.condition import parse_condition
from stratalog.rewrite.erase.erasure import Erase
from stratalog.rewrite.erase.keys import KeySet
from stratalog.rewrite.erase.search import Targets
from stratalog.rewrite.limits import RewriteLimits
from stratalog.rewrite.merge import Merge
from stratalog.rewrite.operation import GroupRecorder, Rewrite
from stratalog.rewrite.plan import rewrite_end
from stratalog.rewrite.recompress import Recompress
from stratalog.rewrite.upgrade import Upgrade
from stratalog.storage.log_config import LogConfig
from stratalog.storage.partition_log import PartitionLog
from stratalog.testing import MemoryFileSystem
from tests.storage.logs import T

FOLDER = "/data/t-0"
CONFIG = LogConfig.of(internal_segment_bytes=700, index_interval_bytes=100)
WIDE = LogConfig.of(internal_segment_bytes=1800, index_interval_bytes=100)

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c"])
VALUES = st.one_of(st.none(), st.binary(max_size=40), st.just(b"secret " * 9))
HEADERS = st.lists(
    st.builds(
        RecordHeader, st.sampled_from(["user", "trace"]), st.one_of(st.none(), st.just(b"u"))
    ),
    max_size=2,
).map(tuple)
RECORDS = st.lists(
    st.builds(Record, VALUES, KEYS, st.integers(T, T + 99), HEADERS), min_size=1, max_size=5
)
OLD_RECORDS = st.lists(
    st.builds(Record, VALUES, KEYS, st.integers(T, T + 99)), min_size=1, max_size=5
)
CODECS = st.sampled_from(Codec)
OLD_CODECS = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
GAPS = st.integers(0, 3)

Row = tuple[Any, ...]
Entry = Callable[[PartitionLog], object]


def batch_of(records: list[Record], codec: Codec, gap: int) -> Entry:
    def append(log: PartitionLog) -> object:
        data = build_batch(records, BatchOptions(codec=codec), base_offset=log.log_end + gap)
        return log.append_as_follower(data)

    return append


def messages_of(records: list[Record], codec: Codec, magic: int, is_appended: bool) -> Entry:
    def append(log: PartitionLog) -> object:
        time = T + 500 if is_appended and magic == 1 else None
        options = MessageOptions(magic=magic, codec=codec, append_time=time)
        return log.append_as_follower(build_messages(records, options, base_offset=log.log_end))

    return append


ENTRIES = st.lists(
    st.one_of(
        st.builds(batch_of, RECORDS, CODECS, GAPS),
        st.builds(messages_of, OLD_RECORDS, OLD_CODECS, st.integers(0, 1), st.booleans()),
    ),
    min_size=4,
    max_size=24,
)


def new_log(entries: list[Entry]) -> PartitionLog:
    disk = MemoryFileSystem(folders=[FOLDER])
    log = PartitionLog.open(FOLDER, CONFIG, file_system=disk, clock=disk.clock, watermark="written")
    for append in entries:
        append(log)
    log.roll()
    return log


def rows(log: PartitionLog) -> list[Row]:
    data = b"".join(each.log.read(0, each.size_bytes) for each in log.segments)
    return [
        (each.offset, each.timestamp, each.key, each.value, each.headers)
        for each in decode_records(data)
    ]


def rewrite(log: PartitionLog, how: Rewrite, config: LogConfig = CONFIG) -> None:
    end = log.log_end
    plan = how.plan(log.view, config, rewrite_end(log.view), lambda _: None)
    for _ in how.carry_out(log, plan, config, RewriteLimits(), GroupRecorder()):
        pass
    assert log.log_end == end
    again = how.plan(log.view, config, rewrite_end(log.view), lambda _: None)
    if not isinstance(how, Merge):
        assert again.groups == (), "there is nothing left to do"


def reopened(log: PartitionLog) -> list[Row]:
    """What the log holds after recovery."""
    end = log.log_end
    log.close()
    again = PartitionLog.open(
        FOLDER, CONFIG, file_system=log.file_system, clock=log.clock, watermark="written"
    )
    assert again.report.cuts == []
    assert again.log_end == end
    return rows(again)


@given(ENTRIES, CODECS)
def test_rewrites_in_a_row_keep_every_record(entries: list[Entry], codec: Codec) -> None:
    log = new_log(entries)
    before = rows(log)
    rewrite(log, Merge(), WIDE)
    assert rows(log) == before
    rewrite(log, Recompress(codec))
    assert rows(log) == before
    rewrite(log, Upgrade())
    assert rows(log) == before
    rewrite(log, Recompress(Codec.ZSTD))
    assert rows(log) == before
    assert reopened(log) == before


@given(ENTRIES, st.sets(st.sampled_from([b"", b"a", b"b"]), min_size=1))
def test_an_erasure_removes_just_what_is_named(entries: list[Entry], keys: set[bytes]) -> None:
    log = new_log(entries)
    kept = [row for row in rows(log) if row[2] not in keys]
    rewrite(log, Erase(Targets(KeySet.of(keys))))
    assert rows(log) == kept
    assert reopened(log) == kept


@given(ENTRIES, st.sets(st.sampled_from([b"", b"a"])))
def test_a_condition_and_keys_together_erase_what_either_names(
    entries: list[Entry], keys: set[bytes]
) -> None:
    log = new_log(entries)
    condition = parse_condition("value like '%secret%' or header.user = 'u'")
    kept = [
        row
        for row in rows(log)
        if row[2] not in keys
        and b"secret" not in (row[3] or b"")
        and RecordHeader("user", b"u") not in row[4]
    ]
    rewrite(log, Erase(Targets(KeySet.of(keys), condition)))
    assert rows(log) == kept
    assert reopened(log) == kept
