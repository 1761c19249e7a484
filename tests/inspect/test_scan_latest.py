"""``scan(latest_per_key=True)``: what full compaction would leave, without rewriting a byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stratalog
from stratalog.errors import CorruptionError, OffsetOutOfRangeError, SpillError, UsageError
from stratalog.inspect.latest.latest_reader import LeftOut
from stratalog.records.builder import BatchOptions, build_batch
from stratalog.records.control import ControlType
from stratalog.records.layout import Codec
from stratalog.records.legacy import MessageOptions, build_messages
from stratalog.records.model import Record
from stratalog.records.v07 import build_entries
from tests.inspect.logs import flipped, segment
from tests.judges.peers.golden import golden_sets
from tests.scale import SCALE, sized
from tests.storage.logs import end_txn, open_log

pytestmark = pytest.mark.scaled

Shown = list[tuple[int, bytes | None, bytes | None]]
COLUMNS = ["offset", "key", "value"]

on_linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux has /proc")

keys = st.none() | st.just(b"") | st.integers(0, 12).map(b"key-%d".__mod__)
values = st.none() | st.binary(max_size=12)
formats = st.sampled_from(
    [
        (magic, codec)
        for magic in (0, 1, 2)
        for codec in Codec
        if magic == 2 or codec is not Codec.ZSTD
    ]
)
partitions = st.lists(
    st.lists(st.tuples(formats, st.lists(st.tuples(keys, values), min_size=1, max_size=6))),
    min_size=1,
    max_size=3,
)


def write(path: Path, number: int, batches: Sequence[Any], per_segment: int = 3) -> list[Record]:
    """A partition with some batches to a segment; its records."""
    written: list[Record] = []
    data, base = b"", 0
    for count, ((magic, codec), pairs) in enumerate(batches):
        if count and count % per_segment == 0:
            segment(path, base, data, partition=f"t-{number}")
            data, base = b"", len(written)
        records = [
            Record(value, key=key, offset=len(written) + row, timestamp=1000 + len(written) + row)
            for row, (key, value) in enumerate(pairs)
        ]
        if magic == 2:
            data += build_batch(records, BatchOptions(codec=codec))
        else:
            data += build_messages(records, MessageOptions(magic=magic, codec=codec))
        written += records
    segment(path, base, data, partition=f"t-{number}")
    return written


def newest(records: Sequence[Record], *, tombstones: bool = False) -> Shown:
    """What a dictionary leaves of records."""
    latest = {record.key: record for record in records if record.key is not None}
    return sorted(
        (record.offset, record.key, record.value)
        for record in latest.values()
        if tombstones or record.value is not None
    )


def shown(scan: stratalog.Scan) -> Shown:
    return [tuple(row[name] for name in COLUMNS) for row in scan.to_table().to_pylist()]


def batch(*pairs: tuple[bytes | None, bytes | None], base: int = 0, **options: Any) -> bytes:
    records = [Record(value, key=key, timestamp=1000 + base) for key, value in pairs]
    return build_batch(records, BatchOptions(**options), base_offset=base)


@settings(max_examples=sized(60, 300 * SCALE))
@given(partitions, st.booleans(), st.booleans())
def test_newest_records_are_those_of_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, made: Any, tombstones: bool, views: bool
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    written = [write(folder, number, batches) for number, batches in enumerate(made)]
    scan = stratalog.scan(
        folder, columns=COLUMNS, latest_per_key=True, tombstones=tombstones, views=views
    )
    wanted = [row for records in written for row in newest(records, tombstones=tombstones)]
    assert shown(scan) == wanted
    dropped = 0 if tombstones else sum(len(newest(r, tombstones=True)) for r in written)
    keyless = sum(record.key is None for records in written for record in records)
    assert scan.left_out == LeftOut(keyless, max(dropped - len(wanted), 0), 0)
    assert shown(scan) == wanted  # it runs again each time


def test_columns_of_the_newest_records_are_those_of_a_plain_scan(tmp_path: Path) -> None:
    write(tmp_path, 3, [((2, Codec.ZSTD), [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])] * 5)
    columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers", "position",
               "base_offset", "codec", "sequence"]  # fmt: skip
    plain = stratalog.scan(tmp_path, columns=columns).to_table()
    latest = stratalog.scan(tmp_path, columns=columns, latest_per_key=True)
    assert pa.table(latest).equals(plain.slice(13, 2))
    assert latest.schema == plain.schema
    assert [each.num_rows for each in latest.with_columns(["offset"], batch_rows=1)] == [1, 1]


@pytest.mark.parametrize("memory", [64 << 10, 256 << 10, None])
def test_keys_that_do_not_fit_are_spilled(tmp_path: Path, memory: int | None) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    pairs = [(b"key-%d" % (n * 7919 % 30_011), b"%d" % n) for n in range(60_000)]
    data = b"".join(
        batch(*pairs[first : first + 500], base=first, codec=Codec.LZ4)
        for first in range(0, len(pairs), 500)
    )
    segment(tmp_path, 0, data)
    scan = stratalog.scan(
        tmp_path / "orders-0", columns=COLUMNS, latest_per_key=True, memory_bytes=memory,
        temp_dir=spill,
    )  # fmt: skip
    last = {key: (n, key, value) for n, (key, value) in enumerate(pairs)}
    assert shown(scan) == sorted(last.values())
    assert list(spill.iterdir()) == []


def test_newest_is_among_what_the_bounds_select(tmp_path: Path) -> None:
    segment(
        tmp_path,
        0,
        b"".join(batch((b"a", b"%d" % n), (b"b", b"%d" % n), base=2 * n) for n in range(10)),
    )

    def found(**bounds: Any) -> Shown:
        return shown(stratalog.scan(tmp_path, columns=COLUMNS, latest_per_key=True, **bounds))

    assert found() == [(18, b"a", b"9"), (19, b"b", b"9")]
    assert found(end=8) == [(6, b"a", b"3"), (7, b"b", b"3")]
    assert found(start=3, end=4) == [(3, b"b", b"1")]
    assert found(offsets="5:7") == [(5, b"b", b"2"), (6, b"a", b"3")]
    assert found(end_time=1009) == [(8, b"a", b"4"), (9, b"b", b"4")]
    assert found(start_time=1010, end_time=1011) == [(10, b"a", b"5"), (11, b"b", b"5")]
    with pytest.raises(OffsetOutOfRangeError):
        found(start=100)


def test_aborted_records_do_not_win_under_read_committed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(batch((b"a", b"old"), (b"b", b"old")))
    of_txn = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    log.append(batch((b"a", b"aborted"), (b"b", None), base_sequence=0, **of_txn))
    end_txn(log, ControlType.ABORT, 1)
    log.append(batch((b"b", b"committed"), base_sequence=2, **of_txn))
    end_txn(log, ControlType.COMMIT, 1)
    log.append(batch((b"a", b"open"), base_sequence=3, **of_txn))
    log.close()

    def found(**how: Any) -> list[bytes | None]:
        scan = stratalog.scan(tmp_path, columns=COLUMNS, latest_per_key=True, **how)
        return [value for *_, value in shown(scan)]

    assert found(isolation="read_committed") == [b"old", b"committed"]
    assert found() == [b"committed", b"open"]


def test_keyless_records_of_every_format_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "old-0"
    folder.mkdir()
    (folder / f"{0:020d}.kafka").write_bytes(build_entries([b"one", b"two"], codec=Codec.GZIP))
    segment(tmp_path, 0, batch((None, b"v"), (b"", b"w")))
    scan = stratalog.scan(tmp_path, columns=COLUMNS, latest_per_key=True)
    assert shown(scan) == [(1, b"", b"w")]
    assert scan.left_out == LeftOut(keyless=3)
    assert stratalog.scan(tmp_path).left_out is None


@pytest.mark.parametrize("golden", golden_sets(), ids=lambda golden: golden.name)
def test_newest_records_of_what_kafka_wrote_are_those_of_a_dictionary(golden: Any) -> None:
    names = ["topic", "partition", *COLUMNS]
    plain = stratalog.scan(golden.log_dirs, columns=names, on_damage="skip").to_table().to_pylist()
    latest = {(row["topic"], row["partition"], row["key"]): row for row in plain}
    wanted = {(*at[:2], row["offset"]) for at, row in latest.items() if at[2] is not None}
    scan = stratalog.scan(
        golden.log_dirs, columns=names, latest_per_key=True, tombstones=True, on_damage="skip"
    )
    in_order = [row for row in plain if (row["topic"], row["partition"], row["offset"]) in wanted]
    assert scan.to_table().to_pylist() == in_order


# Damage.


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Three batches, the second damaged; and another partition, whole."""
    batches = [batch((b"a", b"%d" % n), (b"b%d" % n, b"x"), base=2 * n) for n in range(3)]
    batches[1] = flipped(batches[1], -3)
    segment(tmp_path, 0, b"".join(batches), partition="t-0")
    segment(tmp_path, 0, batch((b"a", b"whole")), partition="t-1")
    return tmp_path


def test_nothing_of_a_damaged_partition_is_shown(damaged: Path) -> None:
    """What follows the damage may be newer."""
    scan = stratalog.scan(damaged, columns=COLUMNS, latest_per_key=True)
    with pytest.raises(CorruptionError, match=r"reading can resume at offset 4; 1 more partition"):
        scan.to_table()
    errors: list[Exception] = []
    scan.on_failure = errors.append
    assert shown(scan) == [(0, b"a", b"whole")]
    assert len(errors) == 1


def test_damage_that_is_skipped_is_listed_once(damaged: Path) -> None:
    scan = stratalog.scan(damaged, columns=COLUMNS, latest_per_key=True, on_damage="skip")
    plain = stratalog.scan(damaged, columns=COLUMNS, on_damage="skip")
    assert shown(scan) == [
        (1, b"b0", b"x"), (4, b"a", b"2"), (5, b"b2", b"x"), (0, b"a", b"whole")
    ]  # fmt: skip
    plain.to_table()
    assert scan.skipped == plain.skipped
    assert [end.pause for end in scan.ends] == [end.pause for end in plain.ends]


def test_a_torn_tail_is_no_error(tmp_path: Path) -> None:
    segment(tmp_path, 0, batch((b"a", b"1")) + batch((b"a", b"2"), base=1)[:-3])
    scan = stratalog.scan(tmp_path, columns=COLUMNS, latest_per_key=True)
    assert shown(scan) == [(0, b"a", b"1")]
    assert len(scan.ends) == 1


# A log that is in use.


def change_between_the_passes(scan: stratalog.Scan, path: Path, data: bytes) -> None:
    """Replace the file at the end of the first pass over it."""

    def change(done: int) -> None:
        if 2 * done >= size:
            path.write_bytes(data)
            scan.progress = None

    size = path.stat().st_size
    scan.progress = change


def test_what_is_appended_between_the_passes_is_not_shown(tmp_path: Path) -> None:
    path = Path(segment(tmp_path, 0, batch((b"a", b"1"))))
    scan = stratalog.scan(tmp_path, columns=COLUMNS, latest_per_key=True)
    more = batch((b"a", b"2"), (b"c", b"2"), base=1)
    change_between_the_passes(scan, path, path.read_bytes() + more)
    assert shown(scan) == [(0, b"a", b"1")]
    assert scan.left_out == LeftOut()
    assert shown(scan) == [(1, b"a", b"2"), (2, b"c", b"2")]


def test_what_compaction_removes_between_the_passes_is_counted(tmp_path: Path) -> None:
    path = Path(segment(tmp_path, 0, batch((b"a", b"1")) + batch((b"b", b"1"), base=1)))
    scan = stratalog.scan(tmp_path, columns=COLUMNS, latest_per_key=True)
    compacted = batch((b"b", b"1"), base=1) + batch((b"a", b"2"), base=2)
    change_between_the_passes(scan, path, compacted)
    assert shown(scan) == [(1, b"b", b"1")]
    assert scan.left_out == LeftOut(missing=1)


# What cannot be.


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"memory_bytes": 1000}, "memory_bytes is at least 65536, not 1000"),
        ({"memory_bytes": "1m"}, "memory_bytes is a whole number"),
        ({"temp_dir": "no/such"}, "temp_dir='no/such' is not a directory"),
        ({"control": True}, "control records have no keys"),
        ({"latest_per_key": False, "tombstones": True}, "needs? latest_per_key=True"),
        ({"latest_per_key": False, "memory_bytes": 1 << 20}, "needs? latest_per_key=True"),
    ],
)
def test_wrong_parameters_are_refused(tmp_path: Path, how: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        stratalog.scan(tmp_path, **{"latest_per_key": True, **how})


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="a folder that even root cannot write to"
)
def test_a_directory_that_takes_no_files_is_one_error_for_all_partitions(tmp_path: Path) -> None:
    pairs = [(b"%d" % n, b"") for n in range(5000)]
    for number in range(2):
        segment(tmp_path, 0, batch(*pairs), partition=f"t-{number}")
    scan = stratalog.scan(
        tmp_path, latest_per_key=True, memory_bytes=64 << 10, temp_dir="/proc/self"
    )
    scan.on_failure = lambda error: pytest.fail(str(error))
    with pytest.raises(SpillError, match="/proc/self: keys cannot be spilled"):
        scan.to_table()


@on_linux
def test_a_scan_that_is_given_up_leaves_no_file_open(tmp_path: Path) -> None:
    segment(tmp_path, 0, batch(*((b"%d" % n, b"v") for n in range(5000))))
    opened = Path("/proc/self/fd")
    before = len(list(opened.iterdir()))
    batches = stratalog.scan(
        tmp_path, latest_per_key=True, memory_bytes=64 << 10, batch_rows=10
    ).taken()
    assert next(batches)[1].rows > 0
    assert len(list(opened.iterdir())) > before
    batches.close()  # type: ignore[attr-defined]
    assert len(list(opened.iterdir())) == before
