"""``stratalog.spark.scan``: what its condition leaves out is never read, and what is read is never wrong."""

from __future__ import annotations

import datetime as dt
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import StratalogError, UsageError
from stratalog.inspect.partition.ends import EndsCache, PartitionEnds
from stratalog.inspect.partition.sources import PartitionSource
from stratalog.spark import scan
from stratalog.spark.options.columns import COLUMNS, DEFAULT_NAMES, ddl_of
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.pushdown.catalyst import pruning_of, references_of
from stratalog.spark.pushdown.condition_text import read_condition
from stratalog.spark.pushdown.pruning import EVERYTHING, Interval, Pruning
from stratalog.spark.pushdown.scan import plan_scan

pytest.importorskip("pyspark")

START_MS = 1_700_000_000_000
START = "2023-11-14 22:13:20"  # the same, in UTC
RECORDS = 600


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two topics with two partitions each, of many segments; a record a second."""
    root = str(tmp_path_factory.mktemp("scan") / "logs")
    with stratalog.open(root, sync=False) as logs:
        for topic in ("orders", "payments"):
            logs.create(topic, 2, {"internal.segment.bytes": 2000, "index.interval.bytes": 200})
            for number in range(RECORDS):
                record = {
                    "key": b"%d" % (number % 7),
                    "value": b"%s %d" % (topic.encode(), number),
                    "timestamp": START_MS + 1000 * number,
                }
                logs.append(topic, [record], partition=number % 2)
    return root


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()))


def read_bytes(path: str, pruning: Pruning, lateness_ms: int | None = None) -> int:
    options = ReadOptions.of({"path": path}, is_stream=False)
    tasks = plan_scan(options, pruning, lateness_ms)
    return sum(each.size_bytes for task in tasks for each in task)


#: Conditions, and the part of the bytes that each may read at most; None: whatever it takes.
CONDITIONS: list[tuple[str, float | None]] = [
    ("topic = 'orders'", 0.51),
    ("topic IN ('orders', 'nothing') AND partition = 1", 0.26),
    ("'payments' = topic", 0.51),
    ("partition <> 0", None),
    ("offset >= 290", 0.1),
    ("offset < 10 OR offset >= 290", None),
    ("offset BETWEEN 100 AND 109", 0.15),
    ("offset = 5 AND topic = 'orders'", 0.1),
    ("10 > offset", 0.1),
    (f"timestamp >= timestamp'{START}' + interval 590 seconds", 0.1),
    (f"timestamp >= '{START}'", None),
    ("timestamp >= '2023-11-14 22:23:10'", 0.1),
    ("timestamp < '2023-11-14 22:13:30'", None),
    ("timestamp = timestamp '2023-11-14 22:13:25'", None),
    ("topic = 'orders' AND length(value) > 8", 0.51),
    ("NOT topic = 'orders'", None),
    ("NOT (offset >= 10)", 0.1),
    ("key = X'33' AND offset < 30", 0.25),
    ("value LIKE 'orders%' AND partition = 0", None),
    ("offset % 50 = 0", None),
    ("offset IS NULL", None),
    ("coalesce(offset, 0) = 5", None),
    ("topic = 'orders' OR partition = 0", None),
    ("(topic = 'orders' AND offset < 5) OR (topic = 'payments' AND offset < 3)", 0.1),
    ("offset > 3 AND offset < 3", 0.0),
    ("topic = 'nothing'", 0.0),
    ("false", 0.0),
    ("true", None),
    ("offset <=> 7", 0.1),
    ("offset >= 7.5 AND offset < 9", 0.1),
    ("offset = '12'", None),
    ("topic > 'orders'", None),
    ("OFFSET >= 290 AND timestamptype = 0", 0.1),
    ("timestamp IN ('2023-11-14 22:13:25', '2023-11-14 22:13:26')", None),
]


@pytest.mark.parametrize(("where", "most"), CONDITIONS)
def test_rows_are_those_that_pass_and_others_are_not_read(
    spark: Any, path: str, where: str, most: float | None
) -> None:
    frame = scan(spark, path, where=where)
    whole = spark.read.format("stratalog").load(path)
    assert frame.columns == list(DEFAULT_NAMES)
    assert frame.schema == whole.schema
    found = rows(frame)
    assert found == rows(whole.where(where))
    assert rows(frame) == found  # as often as one likes
    if most is not None:
        pruning = pruning_of(whole.where(where))
        assert read_bytes(path, pruning) <= most * read_bytes(path, EVERYTHING)


def test_a_column_says_as_much_as_a_text(spark: Any, path: str) -> None:
    from pyspark.sql import functions as sf

    when = dt.datetime(2023, 11, 14, 22, 23, 10, tzinfo=dt.UTC)
    where = (sf.col("topic") == "orders") & (sf.col("timestamp") >= when)
    found = rows(scan(spark, path, where=where, columns=["value"]))
    assert found == sorted((b"orders %d" % number,) for number in range(590, 600))


def test_columns_that_only_the_condition_reads_are_not_answered(spark: Any, path: str) -> None:
    frame = scan(spark, path, where="offset < 2 and topic = 'orders'", columns=["value", "headers"])
    assert frame.columns == ["value", "headers"]
    assert sorted(row.value for row in frame.collect()) == [b"orders %d" % n for n in range(4)]


def test_a_condition_may_spell_columns_as_it_likes(spark: Any, path: str) -> None:
    where = "OFFSET < 2 and Topic = 'orders' and timestamptype = 0"
    found = scan(spark, path, where=where, columns=["value"]).collect()
    assert sorted(row.value for row in found) == [b"orders %d" % n for n in range(4)]


def test_what_a_read_refuses_a_scan_refuses(spark: Any, path: str) -> None:
    bounds = {"startingOffsets": '{"orders": {"0": 5, "1": 5}}', "subscribe": "orders"}
    behind = {**bounds, "endingOffsets": '{"orders": {"0": 5, "1": 4}}'}
    with pytest.raises(StratalogError, match="offset 5 is out of range: the log holds 0 up to 4"):
        scan(spark, path, options=behind)
    with pytest.raises(StratalogError, match="nowhere"):
        scan(spark, path + "/nowhere", where="1 = 0")


def test_an_upper_bound_of_times_saves_reading_where_lateness_is_known(
    spark: Any, path: str
) -> None:
    where = "timestamp < '2023-11-14 22:13:30'"
    pruning = pruning_of(spark.read.format("stratalog").load(path).where(where))
    everything = read_bytes(path, EVERYTHING)
    assert read_bytes(path, pruning) == everything
    assert read_bytes(path, pruning, lateness_ms=1000) < 0.15 * everything
    frame = scan(spark, path, where=where, options={"maxLateness": "1s"}, columns=["value"])
    assert len(frame.collect()) == 20


def test_what_is_read_is_decided_once(spark: Any, tmp_path: Path) -> None:
    root = str(tmp_path / "logs")
    with stratalog.open(root) as logs:
        logs.create("t")
        logs.append("t", [b"one"])
    frame = scan(spark, root, where="offset >= 0", columns=["value"])
    with stratalog.open(root) as logs:
        logs.append("t", [b"two"])
    assert rows(frame) == [(b"one",)]
    assert rows(scan(spark, root, columns=["value"])) == [(b"one",), (b"two",)]


def test_options_bound_it_as_well(spark: Any, path: str) -> None:
    frame = scan(
        spark, path, where="partition = 1", columns=["value"],
        options={"subscribe": "payments", "endingOffsets": '{"payments": {"0": 3, "1": 2}}'},
    )  # fmt: skip
    assert rows(frame) == [(b"payments 1",), (b"payments 3",)]


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda spark, path: scan(spark, path, columns=["nope"]), UsageError, "nope"),
        (lambda spark, path: scan(spark, path, options={"nope": 1}), UsageError, "nope"),
        (lambda spark, path: scan(spark, path + "/nowhere"), StratalogError, "nowhere"),
        (lambda spark, path: scan(spark, path, where="nope = 1"), Exception, "nope"),
        (lambda spark, path: scan(spark, path, where="offset >"), Exception, "Syntax error"),
        (
            lambda spark, path: scan(spark, path, options={"maxLateness": "soon"}),
            UsageError,
            "maxLateness",
        ),
    ],
)
def test_mistakes_are_said_at_once(
    spark: Any, path: str, call: Callable[[Any, str], Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        call(spark, path)


# --- what is said where Spark cannot be asked ----------------------------------------------------


def time_of(text: str) -> int | None:
    try:
        when = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    except ValueError:
        return None
    return int(when.timestamp()) * 1_000_000


@pytest.mark.parametrize(("where", "most"), CONDITIONS)
def test_a_text_lets_through_at_least_what_spark_says(
    spark: Any, where: str, most: float | None
) -> None:
    """Read here, it says what Spark says when it is asked, or less; and no column that it reads is missed."""
    unread = spark.range(0, 1).mapInArrow(lambda batches: batches, ddl_of(tuple(COLUMNS)))
    filtered = unread.where(where)
    found = read_condition(where, time_of)
    if found is None:
        return
    asked = pruning_of(filtered)
    assert found.pruning.both(asked) == asked
    references = references_of(filtered)
    assert references is not None
    assert references <= found.columns
    if most is not None and most < 0.5 and not asked.is_nothing:
        assert found.pruning == asked


def test_most_of_these_conditions_are_known() -> None:
    known = [where for where, _ in CONDITIONS if read_condition(where, time_of) is not None]
    assert len(known) >= 18, known


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topic = 'a'", Pruning(topics=frozenset({"a"}))),
        (" ( TOPIC=='a' ) ", Pruning(topics=frozenset({"a"}))),
        ("`topic` in ('a','b')", Pruning(topics=frozenset("ab"))),
        ("offset >= -5 and offset < 7", Pruning(offsets=Interval(-5, 6))),
        ("3 < partition", Pruning(partitions=Interval(4, None))),
        ("offset = 1 or offset = 9", Pruning(offsets=Interval(1, 9))),
        ("offset = 1 or topic = 'a'", EVERYTHING),
        ("offset between 2 and 5 and partition = 0 or offset = 9", Pruning(offsets=Interval(2, 9))),
        ("timestamp >= '1970-01-01 00:00:01'", Pruning(times_us=Interval(1_000_000, None))),
        ("timestamp >= TIMESTAMP '1970-01-01 00:00:01'", Pruning(times_us=Interval(1_000_000))),
        ("timestamp'1970-01-01 00:00:01' > timestamp", Pruning(times_us=Interval(None, 999_999))),
        ("timestamp >= 'soon' and offset = 1", Pruning(offsets=Interval(1, 1))),
        ("key = 'a' and offset = 1", Pruning(offsets=Interval(1, 1))),
        ("timestamp in ('1970-01-01 00:00:01') and offset = 1", Pruning(offsets=Interval(1, 1))),
        ("offset <> 5", EVERYTHING),
        ("offset = '5'", EVERYTHING),
        ("topic = 5", EVERYTHING),
        ("offset > 3 and offset < 3", None),
    ],
)
def test_what_a_text_says(text: str, expected: Pruning | None) -> None:
    found = read_condition(text, time_of)
    assert found is not None
    if expected is None:
        assert found.pruning.is_nothing
    else:
        assert found.pruning == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "offset", "not offset = 5", "offset >= 5 -- all", "offset >= 5 /* all */", "offset >= 5 - 3",
        "offset >= 5-3", "offset >= 5L", "offset >= 5.5", "offset >= 1e3", "offset = 5 = true",
        "topic = 'it''s'", r"topic = 'a\'b'", "topic = 'a' 'b'", 'topic = "a"', "topic = r'a'",
        "topic = '${a}'", "offset = :a", "offset = ?", "t.offset = 5", "offset = abs(5)", "offset is null",
        "coalesce(offset, 5) = 5", "topic like 'a%'", "offset in ()", "offset in (5", "(offset = 5",
        "offset = 5)", "offset = 5 and", "and offset = 5", "offset = 5 partition = 1", "offset = null",
        "offset = 5 xor topic = 'a'", "offset between 1 or 2", "case when offset = 5 then true end",
        "offset >= 99999999999999999999", "exists (select 1)", "topic = timestamp '2020-01-01'",
        "offset = 5 || 'x'", "!(offset = 5)", "offset ( 5", "5 = 5", "timestamp '2020-01-01' = '2020-01-01'",
        "offset =! 5", "(" * 200 + "offset = 5" + ")" * 200,
    ],
)  # fmt: skip
def test_a_text_that_is_not_wholly_known_says_nothing(text: str) -> None:
    assert read_condition(text, time_of) is None


# --- what a review found -----------------------------------------------------------------------------


@pytest.fixture
def of_session(spark: Any) -> Any:
    """Sets configs of the session for one test."""
    before: dict[str, str | None] = {}

    def set_to(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    yield set_to
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_times_are_instants_also_where_a_session_calls_others_timestamps(
    spark: Any, path: str, of_session: Any
) -> None:
    of_session("spark.sql.timestampType", "TIMESTAMP_NTZ")
    of_session("spark.sql.session.timeZone", "Europe/Berlin")
    where = f"timestamp >= timestamp '{START}Z' + interval 590 seconds"
    read = spark.read.format("stratalog").load(path).where(where)
    scanned = scan(spark, path, where=where)
    assert scanned.schema == read.schema
    assert rows(scanned.selectExpr("topic", "offset", "cast(timestamp as string)")) == rows(
        read.selectExpr("topic", "offset", "cast(timestamp as string)")
    )
    assert scanned.count() == 20


def test_no_columns_at_all_are_refused(spark: Any, path: str) -> None:
    with pytest.raises(UsageError, match="no column is named"):
        scan(spark, path, columns=[])


def test_the_present_is_another_one_at_each_use(spark: Any, tmp_path: Path) -> None:
    """What is too late now may be asked for later."""
    for seconds in (1, 10, 100):  # on a busy machine, a second is over before the first answer
        path = str(tmp_path / f"logs-{seconds}")
        soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
        with stratalog.open(path) as logs:
            logs.create("t", 1)
            logs.append("t", [{"value": "soon", "timestamp": int(soon.timestamp() * 1000)}])
        until_now = scan(spark, path, where="timestamp < now()")
        found = until_now.count()
        if dt.datetime.now(dt.UTC) < soon:
            break
    assert found == 0
    while dt.datetime.now(dt.UTC) <= soon:
        time.sleep(0.02)
    assert until_now.count() == 1


@pytest.mark.parametrize(
    ("where", "is_bounded"),
    [
        ("timestamp >= now() - interval 1 hour", True),
        ("timestamp > current_date()", True),
        ("timestamp >= date_trunc('hour', now()) and topic = 'orders'", True),
        ("timestamp < now()", False),
        ("timestamp >= timestamp_seconds(4e9 - unix_timestamp())", False),
        ("now() < timestamp'2000-01-01'", False),
        ("offset < unix_timestamp()", False),
    ],
)
def test_bounds_that_rise_with_the_present_are_kept(
    spark: Any, where: str, is_bounded: bool
) -> None:
    unread = spark.range(1).mapInArrow(lambda batches: iter(()), ddl_of(DEFAULT_NAMES))
    pruning = pruning_of(unread.where(where))
    assert not pruning.is_nothing
    assert pruning.times_us.high is None
    assert (pruning.times_us.low is not None) == is_bounded
    assert pruning.offsets == Interval()


def test_of_what_is_left_out_nothing_is_asked(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    ends_of = EndsCache.ends_of

    def noting(self: EndsCache, source: PartitionSource, *, stable: bool = False) -> PartitionEnds:
        asked.append(source.topic_partition)
        return ends_of(self, source, stable=stable)

    monkeypatch.setattr(EndsCache, "ends_of", noting)
    offsets = '{"orders": {"0": 3, "1": 3}, "payments": {"0": 3, "1": 3}}'
    given = {"path": path, "startingoffsets": offsets}
    pruning = Pruning(topics=frozenset({"orders"}), partitions=Interval(1, 1))
    assert plan_scan(ReadOptions.of(given, is_stream=False), pruning)
    assert set(asked) == {("orders", 1)}


@pytest.mark.parametrize(
    "cut", [{"splitbytes": "1000"}, {"minpartitions": "60"}, {"maxrecordsperpartition": "10"}]
)
def test_small_tasks_do_not_read_what_others_read(path: str, cut: dict[str, str]) -> None:
    def planned(**options: str) -> list[int]:
        read = ReadOptions.of({"path": path, "subscribe": "orders", **options}, is_stream=False)
        return [sum(each.size_bytes for each in task) for task in plan_scan(read, EVERYTHING)]

    once, cut_up = planned(), planned(**cut)
    assert len(cut_up) > 40
    assert sum(cut_up) < 2 * sum(once)


def test_what_is_left_out_is_told(path: str, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "logs")
    folder = tmp_path / "logs" / "orders-1"
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "logs" / "log-start-offset-checkpoint").write_text("nonsense")
    options = ReadOptions.of({"path": str(tmp_path / "logs")}, is_stream=False)
    with pytest.warns(UserWarning, match="stratalog: ") as told:
        plan_scan(options, EVERYTHING)
    texts = [str(each.message) for each in told]
    assert any("orders-1 is a symbolic link" in text for text in texts)
    assert any("log-start-offset-checkpoint" in text for text in texts)


def test_a_folder_whose_name_is_no_partition_s_is_refused(path: str, tmp_path: Path) -> None:
    shutil.copytree(Path(path, "orders-0"), tmp_path / "segments")
    options = ReadOptions.of({"path": str(tmp_path / "segments")}, is_stream=False)
    with pytest.raises(UsageError, match="the name of a partition folder must be"):
        plan_scan(options, EVERYTHING)
