"""Reading open logs: bounds, times, columns, isolation, as Arrow and as records; and tails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stratalog
from stratalog.errors import OffsetOutOfRangeError, UsageError
from stratalog.manager.logs import Logs
from stratalog.records.layout import TimestampType
from stratalog.testing import ManualClock, MemoryFileSystem
from tests.manager.logdirs import COMMITTED, NOW, ROOT, memory, open_memory, values


@pytest.fixture
def logs(tmp_path):
    with stratalog.open(tmp_path / "logs") as opened:
        yield opened


def filled(logs: Logs, count: int = 100, **configs: Any) -> None:
    """A topic of two partitions; record n of each has the value n and the time NOW + 10 * n."""
    logs.create("a", 2, configs)
    for partition in (0, 1):
        logs.append(
            "a",
            [
                {"key": f"k{n}", "value": str(n), "timestamp": NOW + 10 * n, "partition": partition}
                for n in range(count)
            ],
            batch_bytes=200,
        )


def numbers(logs: Logs, *partitions: Any, **choice: Any) -> list[int]:
    return [int(value or b"") for value in values(logs, "a", *partitions, **choice)]


# --- bounds ----------------------------------------------------------------------------------------


def test_bounds_are_from_and_up_to(logs):
    filled(logs)
    assert numbers(logs, 0) == list(range(100))
    assert numbers(logs, 0, start=30, end=40) == list(range(30, 40))
    assert numbers(logs, 0, start=100) == []
    assert numbers(logs, 0, start=99, end=10**18) == [99]
    assert numbers(logs, 0, start=50, end=50) == numbers(logs, 0, start=50, end=3) == []
    assert numbers(logs, 0, end=-5) == []
    assert numbers(logs, start=97) == [97, 98, 99] * 2
    assert numbers(logs, [1, 0, 1], end=2) == [0, 1, 0, 1]


def test_start_outside_of_the_log_is_told_at_once(logs):
    filled(logs)
    logs.delete_records("a", 1, 20)
    for start in (-1, 101, 10**18):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            logs.read("a", 0, start=start)
        assert (caught.value.start, caught.value.end) == (0, 100)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        logs.read("a", start=10)  # of one partition it is gone
    assert (caught.value.start, caught.value.end) == (20, 100)


@pytest.mark.parametrize("name", ["start", "end", "start_time", "end_time"])
@pytest.mark.parametrize("bound", ["5", 1.5, True, b"x"])
def test_bound_that_is_no_number(logs, name, bound):
    filled(logs, 3)
    with pytest.raises(UsageError, match=f"{name} is a whole number"):
        logs.read("a", 0, **{name: bound})


def test_wrong_batch_rows(logs):
    filled(logs, 3)
    with pytest.raises(UsageError, match="batch_rows"):
        logs.read("a", batch_rows=0)


@pytest.mark.parametrize("segment_bytes", [300, 1 << 20])
def test_times_choose_records_wherever_they_stand(tmp_path, segment_bytes):
    with stratalog.open(tmp_path) as logs:
        filled(logs, internal_segment_bytes=segment_bytes)
        assert numbers(logs, 0, start_time=NOW + 500) == list(range(50, 100))
        assert numbers(logs, 0, start_time=NOW + 501, end_time=NOW + 530) == [51, 52]
        assert numbers(logs, 0, end_time=NOW) == []
        assert numbers(logs, 0, start_time=NOW + 990) == [99]
        assert numbers(logs, 0, start_time=NOW + 991) == []
        assert numbers(logs, 0, start_time=-(2**70), end_time=2**70) == list(range(100))
        assert numbers(logs, 0, start=10, end=60, start_time=NOW + 550) == [55, 56, 57, 58, 59]
        # One that is late, and one of no time.
        logs.append("a", [{"value": "7000", "timestamp": NOW + 5}, {"value": "7001", "timestamp": -1}],
                    partition=0)  # fmt: skip
        assert numbers(logs, 0, start_time=NOW, end_time=NOW + 10) == [0, 7000]
        assert numbers(logs, 0, start_time=-1, end_time=0) == [7001]
    with stratalog.open(tmp_path, read_only=True) as logs:
        assert numbers(logs, 0, start_time=NOW, end_time=NOW + 10) == [0, 7000]
        assert numbers(logs, 0, start_time=NOW + 980) == [98, 99]


TIMES = st.lists(st.integers(-5, 60) | st.just(-1), max_size=40)


@settings(max_examples=60)
@given(
    TIMES, st.integers(-10, 70), st.integers(-10, 70), st.integers(100, 700), st.integers(0, 200)
)
def test_what_the_time_indexes_leave_out_is_never_wanted(times, low, high, segment, interval):
    """Against the records themselves, for times in any order, over segments and index entries."""
    file_system = memory()
    with open_memory(file_system) as logs:
        logs.create("a", 1, internal_segment_bytes=segment, index_interval_bytes=interval)
        logs.append(
            "a", [{"value": str(n), "timestamp": t} for n, t in enumerate(times)], batch_bytes=60
        )
        expected = [n for n, t in enumerate(times) if low <= t < high]
        assert numbers(logs, start_time=low, end_time=high) == expected
    with open_memory(file_system) as logs:
        assert numbers(logs, start_time=low, end_time=high) == expected
    with open_memory(file_system, read_only=True) as logs:
        assert numbers(logs, start_time=low, end_time=high) == expected


def test_what_is_appended_later_is_not_in_it(logs):
    filled(logs, 10)
    rows = logs.read("a", 0)
    timed = logs.read("a", 0, start_time=NOW + 50)
    logs.append("a", [{"value": str(n), "timestamp": NOW + 10 * n} for n in range(10, 500)],
                partition=0, batch_bytes=100)  # fmt: skip
    assert [int(r.value or b"") for r in rows.records()] == list(range(10))
    assert [int(r.value or b"") for r in rows.records()] == list(range(10))  # as often as wanted
    assert [int(r.value or b"") for r in timed.records()] == [5, 6, 7, 8, 9]
    late = logs.read("a", 0, start_time=NOW + 4000)
    assert len(list(late.records())) == 100


def test_view_from_before_everything_came_reads_nothing(logs):
    logs.create("a")
    rows = logs.read("a", start_time=NOW)
    logs.append("a", [{"value": "x", "timestamp": NOW + n} for n in range(100)], batch_bytes=60)
    assert list(rows.records()) == []


def test_deletion_and_retention_while_one_reads(tmp_path):
    """Who has what there was goes on with it, also when the files are gone; who comes later is told."""
    clock = ManualClock()
    with stratalog.open(tmp_path, clock=clock) as logs:
        logs.create(
            "a", 1, internal_segment_bytes=300, retention_ms=9000, file_delete_delay_ms=5000
        )
        logs.append("a", [f"{n}" * 100 for n in range(10)], batch_bytes=1)
    with stratalog.open(tmp_path, clock=clock) as logs:
        begun = logs.read("a").records()
        assert next(begun).offset == 0
        rows = logs.read("a")
        clock.advance(10_000)
        logs.append("a", ["new"])
        assert logs.retain() == 9
        assert [record.offset for record in begun] == list(range(1, 10))
        clock.advance(5000)
        logs.retain()
        assert list((tmp_path / "a-0").glob("*.deleted")) == []
        assert [record.offset for record in rows.records()] == list(range(10))
        assert [record.offset for record in logs.read("a").records()] == [9, 10]
        with pytest.raises(OffsetOutOfRangeError):
            logs.read("a", start=0)


# --- columns ---------------------------------------------------------------------------------------


def test_columns_are_those_asked_for_in_their_order(logs):
    pytest.importorskip("pyarrow")
    filled(logs, 3)
    rows = logs.read("a", columns=["value", "topic", "offset", "partition", "codec", "position"])
    assert rows.schema.names == ["value", "topic", "offset", "partition", "codec", "position"]
    table = rows.to_table()
    assert table.num_rows == 6
    assert table.slice(5, 1).to_pylist() == [
        {"value": b"2", "topic": "a", "offset": 2, "partition": 1, "codec": "none", "position": 0}
    ]
    default = logs.read("a").schema.names
    assert default == ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value",
                       "headers"]  # fmt: skip


@pytest.mark.parametrize("columns", [["topic"], ["partition"], ["topic", "partition"], "offset"])
def test_few_columns(logs, columns):
    pytest.importorskip("pyarrow")
    filled(logs, 5)
    table = logs.read("a", columns=columns).to_table()
    assert table.num_rows == 10
    assert table.column_names == [columns] if isinstance(columns, str) else columns


@pytest.mark.parametrize(
    ("columns", "match"),
    [(["valeu"], "no column 'valeu': there are topic"), ([], "at least one"),
     (["key", "key"], "each only once"), ([5], "no column 5")],
)  # fmt: skip
def test_wrong_columns(logs, columns, match):
    filled(logs, 3)
    with pytest.raises(UsageError, match=match):
        logs.read("a", columns=columns)


def test_batches_are_not_larger_than_asked_for(logs):
    pytest.importorskip("pyarrow")
    filled(logs, 1000)
    sizes = [batch.num_rows for batch in logs.read("a", batch_rows=64)]
    assert max(sizes) <= 64
    assert sum(sizes) == 2000


def test_others_take_it_as_it_is(logs):
    pa = pytest.importorskip("pyarrow")
    filled(logs, 50)
    rows = logs.read("a")
    assert pa.table(rows).num_rows == 100
    assert pa.RecordBatchReader.from_stream(rows).read_all() == rows.to_table()
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(rows).height == 100
    duckdb = pytest.importorskip("duckdb")
    assert duckdb.sql('select count(*), max("offset") from rows').fetchall() == [(100, 49)]


def test_empty_topic_has_a_schema_and_no_rows(logs):
    pytest.importorskip("pyarrow")
    logs.create("a", 3)
    table = logs.read("a").to_table()
    assert (table.num_rows, table.num_columns) == (0, 8)
    assert list(logs.read("a").records()) == list(logs.read("a")) == []


def test_record_has_everything(logs):
    logs.create("a", 1, message_timestamp_type="LogAppendTime")
    logs.append("a", [{"key": None, "value": b"", "headers": [("h", None), ("h", b"2")]}])
    (record,) = logs.read("a").records()
    assert (record.topic, record.partition, record.offset) == ("a", 0, 0)
    assert (record.key, record.value) == (None, b"")
    assert [(h.key, h.value) for h in record.headers] == [("h", None), ("h", b"2")]
    assert record.timestamp_type is TimestampType.APPEND_TIME


def test_isolation(logs):
    logs.create("a")
    logs.append("a", ["1"])
    txn = logs.transaction()
    txn.append("a", ["2"])
    logs.append("a", ["3"])
    assert numbers(logs, isolation="read_committed") == [1]
    assert numbers(logs, isolation="read_uncommitted") == [1, 2, 3]
    txn.abort()
    assert numbers(logs, isolation=COMMITTED) == [1, 3]
    assert numbers(logs, start=1, isolation=COMMITTED) == [3]
    assert numbers(logs, start=2, end=3, isolation=COMMITTED) == [3]


def test_isolation_over_many_segments_and_transactions(logs):
    """Aborted records are left out wherever the reading begins and in how many regions it goes on."""
    logs.create("a", 1, internal_segment_bytes=400)
    for n in range(40):
        txn = logs.transaction()
        txn.append("a", [f"{n}0", f"{n}1"])
        logs.append("a", [f"{n}2"])
        txn.append("a", [f"{n}3"])
        if n % 3:
            txn.commit()
        else:
            txn.abort()
    expected = [
        (record.offset, value)
        for record in logs.read("a").records()
        if (value := int(record.value or b"")) % 10 == 2 or value // 10 % 3
    ]
    for start in range(0, logs.latest("a"), 7):
        found = logs.read("a", start=start, isolation=COMMITTED).records()
        assert [(r.offset, int(r.value or b"")) for r in found] == [
            each for each in expected if each[0] >= start
        ]


# --- tails -----------------------------------------------------------------------------------------


def taken(tail: Iterator[Any]) -> list[int]:
    return [int(record.value) for record in tail]


def test_tail_from_now_on_begins_when_it_is_asked_for(logs):
    filled(logs, 5)
    tail = logs.tail("a", timeout_s=0.05)
    logs.append("a", ["100"], partition=0)
    logs.append("a", ["101"], partition=1)  # before anybody takes the first record
    assert sorted(taken(tail)) == [100, 101]


def test_tail_from_the_start_and_from_an_offset(logs):
    filled(logs, 5)
    assert taken(logs.tail("a", 0, start=0, timeout_s=0)) == [0, 1, 2, 3, 4]
    assert taken(logs.tail("a", start=3, timeout_s=0)) == [3, 4, 3, 4]
    assert taken(logs.tail("a", start=5, timeout_s=0)) == []
    assert taken(logs.tail("a", timeout_s=0)) == []
    for wrong in (-1, 6):
        with pytest.raises(OffsetOutOfRangeError):
            logs.tail("a", start=wrong)


def test_tail_goes_on_for_as_long_as_records_come(logs):
    logs.create("a")
    seen = []
    for record in logs.tail("a", timeout_s=0.2):
        seen.append(int(record.value or b""))
        raise AssertionError  # nothing is there
    for record in logs.tail("a", start=0, timeout_s=0.05):
        raise AssertionError(record)
    tail = logs.tail("a", timeout_s=0.05)
    logs.append("a", ["0"])
    for record in tail:
        number = int(record.value or b"")
        seen.append(number)
        if number < 20:
            logs.append("a", [str(number + 1)])
    assert seen == list(range(21))


@pytest.mark.parametrize("partitions", [1, 3])
def test_tail_while_another_thread_appends(logs, partitions):
    logs.create("a", partitions)
    tail = logs.tail("a", timeout_s=60)
    count = 200

    def write() -> None:
        for n in range(count):
            logs.append("a", [str(n)], partition=n % partitions)
            if n % 50 == 0:
                time.sleep(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    seen = [next(tail) for _ in range(count)]
    writer.join()
    for partition in range(partitions):
        own = [int(r.value or b"") for r in seen if r.partition == partition]
        assert own == list(range(partition, count, partitions))


@pytest.mark.parametrize("partitions", [1, 2])
def test_tail_ends_when_the_logs_are_closed(tmp_path, partitions):
    logs = stratalog.open(tmp_path)
    logs.create("a", partitions)
    seen: list[int] = []
    done = threading.Event()

    def follow() -> None:
        for record in tail:
            seen.append(int(record.value or b""))  # noqa: PERF401 # one by one
        done.set()

    tail = logs.tail("a")
    reader = threading.Thread(target=follow)
    reader.start()
    logs.append("a", ["1"], partition=0)
    while not seen:
        time.sleep(0.005)
    logs.close()
    assert done.wait(60)
    reader.join()
    assert seen == [1]


def test_tail_ends_quietly_also_when_closed_in_the_middle_of_reading(tmp_path):
    logs = stratalog.open(tmp_path)
    logs.create("a", 1)
    logs.append("a", ["1" * 1000] * 10_000)
    tail = logs.tail("a", start=0)
    next(tail)
    logs.close()
    assert len(list(tail)) < 10_000  # what was read already comes, and no error


def test_tail_of_what_is_committed(logs):
    logs.create("a")
    tail = logs.tail("a", isolation="read_committed", timeout_s=0.05)
    logs.append("a", ["1"])
    one, two = logs.transaction(), logs.transaction()
    one.append("a", ["2"])
    two.append("a", ["3"])
    assert int(next(tail).value or b"") == 1
    two.commit()
    logs.append("a", ["4"])
    one.abort()
    assert taken(tail) == [3, 4]


def test_tail_waits_for_a_commit_in_another_thread(logs):
    logs.create("a")
    tail = logs.tail("a", isolation="read_committed", timeout_s=10)
    txn = logs.transaction()
    txn.append("a", ["1"])
    timer = threading.Timer(0.05, txn.commit)
    timer.start()
    assert int(next(tail).value or b"") == 1
    timer.join()


def test_tail_that_retention_overtakes_says_so(tmp_path):
    clock = ManualClock()
    with stratalog.open(tmp_path, clock=clock) as logs:
        logs.create("a", 1, retention_ms=1000)
        logs.append("a", ["1", "2", "3"])
        tail = logs.tail("a", start=0, timeout_s=0)
        logs.delete_records("a", 0, 2)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            next(tail)
        assert (caught.value.offset, caught.value.start) == (0, 2)


def test_two_tails_are_each_others_business(logs):
    filled(logs, 5)
    one, two = (logs.tail("a", 0, start=0, timeout_s=0) for _ in range(2))
    assert next(one).offset == 0
    assert taken(two) == [0, 1, 2, 3, 4]
    assert taken(one) == [1, 2, 3, 4]


def test_memory_file_system_serves_as_well():
    file_system = MemoryFileSystem(folders=[ROOT])
    with open_memory(file_system) as logs:
        filled(logs, 20, internal_segment_bytes=300)
        assert numbers(logs, 1, start=5, end=9) == [5, 6, 7, 8]
        assert taken(logs.tail("a", 0, start=18, timeout_s=0)) == [18, 19]
