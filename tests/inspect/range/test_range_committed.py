"""Ranges under read_committed: what Kafka's consumer shows, from lists that the plan carries."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.inspect.partition.ends import EndsCache
from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.range.plan import plan_range
from stratalog.inspect.range.split import split_ranges
from stratalog.records.columns import Selection
from stratalog.records.control import ControlType
from stratalog.records.layout import Check, Codec, Column
from stratalog.storage.views.log_view import Isolation
from stratalog.storage.views.read_columns import read_columns
from tests.inspect.ranges import COLUMNS, SMALL, append_some, read, rows_of, source_of
from tests.judges.peers.golden import golden_sets
from tests.scale import SCALE
from tests.storage.logs import end_txn, in_txn, open_log

COMMITTED = Isolation.COMMITTED
SETS = [golden for golden in golden_sets() if golden.has_committed and not golden.damaged]


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_a_golden_set_shows_what_kafka_s_consumer_did(golden):
    chance = random.Random(golden.name)
    expected: dict[tuple[str, int], list[int]] = {}
    for line in golden.expected(committed=True):
        expected.setdefault((line["topic"], line["partition"]), []).append(line["offset"])
    for folder in golden.log_dirs:
        for source in find_sources(str(folder)).partitions:
            assert source.topic_partition is not None
            wanted = expected.get(
                (source.topic_partition.topic, source.topic_partition.partition), []
            )
            planned = plan_range(source, isolation=COMMITTED, cut_bytes=300)
            assert [offset for offset, _ in read(planned)] == wanted
            groups = split_ranges([planned], split_bytes=chance.choice([1, 300, 2000]))
            parts = [part for group in groups for part in group]
            assert [offset for offset, _ in read(*parts)] == wanted
            start, end = sorted(chance.randint(0, planned.end) for _ in range(2))
            some = read(plan_range(source, start, end, isolation=COMMITTED))
            assert [offset for offset, _ in some] == [n for n in wanted if start <= n < end]


def test_the_sets_have_what_this_is_about():
    assert "v2-transactions" in {golden.name for golden in SETS}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "write", "write", "commit", "abort"]),
        st.integers(1, 4),  # producer
        st.integers(1, 3),  # records
        st.sampled_from([Codec.NONE, Codec.LZ4]),
    ),
    max_size=70,
)


@settings(max_examples=60 * SCALE, deadline=None)
@given(steps=STEPS, data=st.data())
def test_random_transactions_show_what_the_log_s_own_reader_does(tmp_path_factory, steps, data):
    folder = tmp_path_factory.mktemp("log") / "t-0"
    log = open_log(folder, SMALL)
    sequences = dict.fromkeys(range(1, 5), 0)
    is_open = dict.fromkeys(range(1, 5), False)
    cache = EndsCache()
    append_some(log, 1)
    for number, (what, producer, records, codec) in enumerate(steps):
        if what == "plain":
            append_some(log, 1, records=records)
        elif what == "write":
            values = [b"%d" % number] * records
            log.append(in_txn(producer, sequences[producer], *values, codec=codec))
            sequences[producer] += records
            is_open[producer] = True
        elif is_open[producer]:
            kind = ControlType.COMMIT if what == "commit" else ControlType.ABORT
            end_txn(log, kind, producer)
            is_open[producer] = False
        if number % 10 == 5:  # so that what is known grows step by step
            plan_range(source_of(folder), isolation=COMMITTED, cache=cache)
    log.advance_high_watermark(log.log_end)
    source = source_of(folder)
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, log.log_end)] * 2)))
    for first, last in ((0, log.log_end), (start, end)):
        wanted = rows_of(
            (None, taken)
            for taken in read_columns(log.view, COLUMNS, COMMITTED, start=first, end=last)
        )
        for known in (cache, None):
            planned = plan_range(
                source, first, last, isolation=COMMITTED, cache=known, cut_bytes=200
            )
            assert planned.end <= log.last_stable_offset or planned.start == planned.end
            assert read(planned) == wanted
            groups = split_ranges([planned], split_bytes=300)
            assert read(*(part for group in groups for part in group)) == wanted
    log.abandon()


def test_aborted_records_are_shown_to_who_does_not_ask(tmp_path):
    log = open_log(tmp_path / "t-0")
    log.append(in_txn(1, 0, b"a", b"b"))
    end_txn(log, ControlType.ABORT, 1)
    log.append(in_txn(1, 2, b"c"))
    log.close()
    source = source_of(tmp_path / "t-0")
    assert plan_range(source).aborted is None
    assert [offset for offset, _ in read(plan_range(source))] == [0, 1, 3]
    planned = plan_range(source, isolation=COMMITTED)
    assert (planned.end, [txn.first_offset for txn in planned.aborted or ()]) == (3, [0])
    assert read(planned) == []
    markers = Selection(columns=COLUMNS.columns, check=Check.INCLUDE_CONTROL)
    assert [offset for offset, _ in read(planned, selection=markers)] == [2]
    assert Column.OFFSET in COLUMNS.columns


def test_a_split_carries_only_the_transactions_that_it_touches(tmp_path):
    log = open_log(tmp_path / "t-0", SMALL)
    for number in range(30):
        log.append(in_txn(1, 2 * number, b"a", b"b"))
        end_txn(log, ControlType.ABORT, 1)
    log.close()
    planned = plan_range(source_of(tmp_path / "t-0"), isolation=COMMITTED, cut_bytes=200)
    assert len(planned.aborted or ()) == 30
    parts = [part for group in split_ranges([planned], split_bytes=400) for part in group]
    assert len(parts) > 5
    assert all(len(part.aborted or ()) < 12 for part in parts)
