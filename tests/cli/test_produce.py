"""``stratalog produce``: lines into topics, what cat prints back into logs, and every way it can go wrong."""

from __future__ import annotations

import base64
import errno
import io
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stratalog
from stratalog.cli.record_lines import RecordLine, read_records
from stratalog.errors import StorageError, StratalogError, UsageError
from stratalog.manager.write.partitioner import partition_of_key
from stratalog.records.layout import Codec
from stratalog.records.scan import scan_batches
from tests.cli.runner import Run, command, run
from tests.judges.peers.golden import golden_set
from tests.storage.logs import small
from tests.storage.wide_segments import wide

LOG = "00000000000000000000.log"


def produce(text: str | bytes, *arguments: object) -> Run:
    """In this process, with this standard input."""
    return run("produce", *arguments, stdin=text)


def values(root: Path, topic: str, partition: int | None = None) -> list[bytes | None]:
    with stratalog.open(root, read_only=True) as logs:
        return [record.value for record in logs.read(topic, partition).records()]


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def line(**fields: Any) -> str:
    return json.dumps(fields) + "\n"


# --- lines -----------------------------------------------------------------------------------------


def test_each_line_is_a_value(tmp_path):
    done = produce("one\ntwo\n", tmp_path, "-t", "t", "-o", "csv")
    assert (done.code, done.err) == (0, "")
    assert done.out.decode().splitlines() == [
        "topic,partition,records,first_offset,last_offset", "t,0,2,0,1",
    ]  # fmt: skip
    assert produce("three", tmp_path, "-t", "t").rows() == [
        {"topic": "t", "partition": 0, "records": 1, "first_offset": 2, "last_offset": 2}
    ]
    assert values(tmp_path, "t") == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\xff\x00\x1b\n\xc3(", [b"\xff\x00\x1b", b"\xc3("]),
        (b" a \t\n", [b" a \t"]),
        ("ä\u2028ö\x0b\x0c\x85\n".encode(), ["ä\u2028ö\x0b\x0c\x85".encode()]),
    ],
)
def test_line_ends_at_a_newline_and_nothing_else(tmp_path, text, expected):
    assert produce(text, tmp_path, "-t", "t").code == 0
    assert values(tmp_path, "t") == expected


def test_nothing_makes_the_topic_and_no_row(tmp_path):
    done = produce("", tmp_path, "-t", "t", "--partitions", 2)
    assert (done.code, done.out) == (0, b"")
    with stratalog.open(tmp_path, read_only=True) as logs:
        assert logs.topic("t").partitions == (0, 1)


def test_directory_is_left_in_order_and_every_record_is_on_the_disk(tmp_path):
    produce("x\n" * 100, tmp_path / "new", "-t", "t")
    assert (tmp_path / "new" / ".kafka_cleanshutdown").exists()
    with stratalog.open(tmp_path / "new") as logs:
        assert logs.partition("t").report.recovered_segments == []
        assert logs.partition("t").recovery_point == 100


def test_partition_and_partitions(tmp_path):
    produce("x\n", tmp_path, "-t", "t", "-p", 2)
    with stratalog.open(tmp_path, read_only=True) as logs:
        assert logs.topic("t").partitions == (0, 1, 2)
    assert values(tmp_path, "t", 2) == [b"x"]
    assert [row["partition"] for row in produce("y\n", tmp_path, "-t", "t", "-p", 1).rows()] == [1]
    produce("z\n", tmp_path, "-t", "u", "--partitions", 4, "-p", 3)
    assert values(tmp_path, "u", 3) == [b"z"]
    done = produce("y\n", tmp_path, "-t", "t", "-p", 7)
    assert (done.code, "no partition 7: there are 0, 1, 2" in done.err) == (2, True)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codec(tmp_path, codec):
    assert produce("abcdefgh" * 50 + "\n", tmp_path, "-t", "t", "-z", codec).code == 0
    data = (tmp_path / "t-0" / LOG).read_bytes()
    assert [header.codec for header in scan_batches(data)] == [Codec[codec.upper()]]
    assert values(tmp_path, "t") == [b"abcdefgh" * 50]


def test_configs_are_those_of_the_new_topic(tmp_path):
    done = produce(
        "x\n", tmp_path, "-t", "t", "-c", "retention.ms=-1", "-c", " segment_bytes = 2097152 "
    )
    assert done.code == 0
    with stratalog.open(tmp_path, read_only=True) as logs:
        assert logs.topic("t").config.overrides() == {
            "retention.ms": "-1", "segment.bytes": "2097152",
        }  # fmt: skip
    done = produce("y\n", tmp_path, "-t", "t", "-c", "retention.ms=5")
    assert done.code == 0
    assert done.err == (
        "stratalog: warning: topic 't' already exists: its configs and partitions stay\n"
    )
    with stratalog.open(tmp_path, read_only=True) as logs:
        assert logs.topic("t").config.retention_ms == -1


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["-c", "retention.msx=1"], "did you mean retention.ms?"),
        (["-c", "retention.ms=soon"], "retention.ms: 'soon' is not"),
        (["-c", "retention.ms"], "write NAME=VALUE"),
        (["-c", "=5"], "write NAME=VALUE"),
        (["-c", "retention.ms=1", "-c", "retention.ms=2"], "retention.ms is given twice"),
        (["-c", "retention.ms=1", "-c", "retention_ms=2"], "retention.ms is given twice"),
        (["-t", "a/b"], "is not a topic"),
        (["-z", "rar"], "'rar' is not one of"),
        (["-p", "-1"], "-p"),
        (["-p", "x"], "-p"),
        (["--partitions", "0"], "--partitions"),
        (["-i", "avro"], "'avro' is not one of"),
    ],
)
def test_wrong_argument_is_exit_code_2_and_no_topic(tmp_path, arguments, match):
    with stratalog.open(tmp_path) as logs:
        logs.create("old")
    done = produce("x\n", tmp_path, "-t", "t", *arguments)
    assert (done.code, match in done.err) == (2, True), done.err
    assert "Traceback" not in done.err
    with stratalog.open(tmp_path, read_only=True) as logs:
        assert list(logs.topics()) == ["old"]


def test_topic_must_be_named(tmp_path):
    done = produce("x\n", tmp_path)
    assert (done.code, "-t" in done.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


# --- ndjson ----------------------------------------------------------------------------------------


def test_each_object_is_a_record(tmp_path):
    text = (
        line(key=b64("k"), value=b64("v"), timestamp=5, partition=1, headers=[["h", b64("x")], ["n", None]])
        + "\n"
        + line(value=None, key=None)
        + line(value="")
        + line(key=b64("only"), value=None)
        + line(value=b64("ignored"), offset=77, topic="other", timestamp_type=1)
        + line(key=None, value=b64("no marker"), is_control=False)
    )  # fmt: skip
    done = produce(text, tmp_path, "-t", "t", "-i", "ndjson", "--partitions", 2)
    assert done.code == 0, done.err
    with stratalog.open(tmp_path, read_only=True) as logs:
        found = {(record.key, record.value): record for record in logs.read("t").records()}
    assert set(found) == {
        (b"k", b"v"), (None, None), (None, b""), (b"only", None), (None, b"ignored"),
        (None, b"no marker"),
    }  # fmt: skip
    first = found[b"k", b"v"]
    assert (first.partition, first.timestamp) == (1, 5)
    assert [(h.key, h.value) for h in first.headers] == [("h", b"x"), ("n", None)]


@pytest.mark.parametrize(
    "name",
    ["v2-headers-and-nulls", "v2-timestamps", "v2-many-partitions", "v2-big-records", "v2-zstd",
     "v2-multi-dir", "v1-nulls", "v0-plain", "v2-transactions"],
)  # fmt: skip
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_cat_and_produce_give_the_same_records_back(tmp_path, name, codec):
    golden = golden_set(name)
    columns = "partition,timestamp,key,value,headers"
    topics = sorted({part.topic for part in golden.partitions()})
    for topic in topics:
        source = run("cat", "-o", "ndjson", "-t", topic, *golden.log_dirs)
        # Times of these sets lie wherever they may: a topic that takes any keeps them.
        done = produce(
            source.out, tmp_path / "copy", "-t", topic, "-i", "ndjson", "-z", codec,
            "-c", f"message.timestamp.after.max.ms={2**63 - 1}", "-c", "retention.ms=-1",
        )  # fmt: skip
        assert (done.code, done.err) == (0, "")
        wanted = [json.loads(each) for each in source.out.splitlines()]
        wanted = [{k: v for k, v in row.items() if k in columns.split(",")} for row in wanted]
        copy = run("cat", "-o", "ndjson", "-t", topic, "--columns", columns, tmp_path / "copy")
        assert copy.rows() == wanted
    twice = tmp_path / "twice"
    for topic in topics:
        once = run("cat", "-o", "ndjson", "-t", topic, tmp_path / "copy")
        produce(once.out, twice, "-t", topic, "-i", "ndjson",
                "-c", f"message.timestamp.after.max.ms={2**63 - 1}")  # fmt: skip
        # Offsets are counted anew in the first copy: from then on even those are the same.
        again = run("cat", "-o", "ndjson", "-t", topic, twice)
        assert again.out.replace(b'"timestamp_type": 1', b"") == once.out.replace(
            b'"timestamp_type": 1', b""
        )


def test_new_topic_gets_the_partitions_that_records_name(tmp_path):
    text = line(value=b64("a"), partition=3) + line(value=b64("b"), partition=1)
    assert produce(text, tmp_path, "-t", "t", "-i", "ndjson").code == 0
    with stratalog.open(tmp_path, read_only=True) as logs:
        assert logs.topic("t").partitions == (0, 1, 2, 3)
    done = produce(line(value=b64("c"), partition=4), tmp_path, "-t", "t", "-i", "ndjson")
    assert done.code == 2
    assert done.err == (
        "stratalog: line 1: topic 't' has no partition 4: it has 4; name one for all records with -p\n"
    )
    done = produce(line(value=b64("c"), partition=4), tmp_path, "-t", "t", "-i", "ndjson", "-p", 0)
    assert (done.code, values(tmp_path, "t", 0)) == (0, [b"c"])


def test_wrong_number_does_not_fill_the_disk_with_folders(tmp_path):
    text = line(value=b64("a")) + line(value=b64("b"), partition=2_000_000_000)
    done = produce(text, tmp_path, "-t", "t", "-i", "ndjson")
    assert done.code == 2
    assert "line 2: partition 2000000000 is one of very many" in done.err
    assert "--partitions" in done.err
    assert values(tmp_path, "t") == [b"a"]
    assert len(list(tmp_path.glob("t-*"))) == 1


def test_keys_go_where_kafkas_producers_send_them(tmp_path):
    text = "".join(line(key=b64(f"k{n}"), value=b64(str(n))) for n in range(60))
    produce(text, tmp_path, "-t", "t", "-i", "ndjson", "--partitions", 5)
    with stratalog.open(tmp_path, read_only=True) as logs:
        for record in logs.read("t").records():
            assert record.partition == partition_of_key(record.key or b"", 5)


WRONG = {
    "{": "not JSON",
    "nonsense": "not JSON",
    "5": "a record is a JSON object",
    "[]": "a record is a JSON object",
    "null": "a record is a JSON object",
    "{}": "a record is a JSON object",
    '{"offset": 5}': "a record is a JSON object",
    '{"value": 5}': "'value' must be base64 text",
    '{"value": "not base64!"}': "'value' is not base64",
    '{"value": "abc"}': "'value' is not base64",
    '{"value": "é"}': "'value' is not base64",
    '{"key": "aw=="}': "a record is a JSON object with a 'value' (null for a tombstone)",
    '{"value": "", "kye": "aw=="}': "a record has no 'kye'",
    '{"value": "", "key": {"a": 1}}': "'key' must be base64 text",
    '{"value": "", "timestamp": "now"}': "'timestamp' is a whole number",
    '{"value": "", "timestamp": 1.5}': "'timestamp' is a whole number",
    '{"value": "", "timestamp": true}': "'timestamp' is a whole number",
    '{"value": "", "timestamp": 9223372036854775808}': "'timestamp' is a whole number",
    '{"value": "", "partition": -1}': "'partition' is a whole number",
    '{"value": "", "partition": 2147483648}': "'partition' is a whole number",
    '{"value": "", "partition": "0"}': "'partition' is a whole number",
    '{"value": "", "headers": 5}': "'headers' must be a list",
    '{"value": "", "headers": {"a": ""}}': "'headers' must be a list",
    '{"value": "", "headers": [["a"]]}': "a header must be a pair",
    '{"value": "", "headers": [[5, ""]]}': "a header must be a pair",
    '{"value": "", "headers": [["a", 5]]}': "'header' must be base64 text",
    '{"value": "", "headers": [["\\ud800", ""]]}': "surrogates not allowed",
    '{"value": "", "is_control": true}': "a control record ends a transaction",
    "[" * 100_000: "line 3: ",
    "9" * 5000: "line 3: ",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong[:40])
def test_wrong_line_is_named_and_those_before_it_are_there(tmp_path, wrong):
    text = line(value=b64("one")) + "\n" + wrong + "\n" + line(value=b64("never"))
    done = produce(text, tmp_path, "-t", "t", "-i", "ndjson")
    assert done.code == 2
    assert done.err.startswith("stratalog: line 3: ")
    assert WRONG[wrong] in done.err
    assert done.err.count("\n") == 1
    assert [row["records"] for row in done.rows()] == [1]  # what was appended is told, too
    assert values(tmp_path, "t") == [b"one"]


def test_bytes_that_are_no_text_are_a_wrong_line(tmp_path):
    done = produce(b'{"value": ""}\n\xff\xfe{}\n', tmp_path, "-t", "t", "-i", "ndjson")
    assert (done.code, done.err.startswith("stratalog: line 2: ")) == (2, True)


def test_record_that_the_topic_refuses_names_its_line(tmp_path):
    done = produce("x\n" + "y" * 2000 + "\n", tmp_path, "-t", "t", "-c", "max.message.bytes=1000")
    assert done.code == 2
    assert done.err.startswith("stratalog: line 2: ")
    assert "max.message.bytes" in done.err
    late = line(value="", timestamp=2**62)
    done = produce(late, tmp_path, "-t", "u", "-i", "ndjson")
    assert (done.code, done.err.startswith("stratalog: line 1: ")) == (2, True)
    compacted = produce("no key\n", tmp_path, "-t", "c", "-c", "cleanup.policy=compact")
    assert (compacted.code, "key" in compacted.err) == (2, True)


# --- the directory ---------------------------------------------------------------------------------


def test_directory_that_is_locked_is_exit_code_3(tmp_path):
    with stratalog.open(tmp_path):
        done = subprocess.run(
            command("produce", tmp_path, "-t", "t"), input=b"x\n", capture_output=True
        )
    assert done.returncode == 3
    assert done.stderr.decode().startswith(f"stratalog: {tmp_path}/.lock: locked by ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("kind", "code"), [("file", 3), ("other things", 2), ("no parent", 3), ("damaged", 1)]
)
def test_what_is_no_log_directory(tmp_path, kind, code):
    path = tmp_path / "x"
    if kind == "file":
        path.touch()
    elif kind == "no parent":
        path = path / "y"
    else:
        path.mkdir()
        name = "meta.properties" if kind == "damaged" else "photo.jpg"
        (path / name).write_text("version=9\n")
    done = produce("x\n", path, "-t", "t")
    assert (done.code, str(path) in done.err, done.err.count("\n")) == (code, True, 1)


def test_what_recovery_cut_is_a_warning(tmp_path):
    produce("one\ntwo\n", tmp_path, "-t", "t")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with (tmp_path / "t-0" / LOG).open("ab") as file:
        file.write(b"half a batch")
    (tmp_path / "replication-offset-checkpoint").write_text("nonsense\n")
    done = produce("three\n", tmp_path, "-t", "t")
    assert done.code == 0
    lines = done.err.splitlines()
    assert len(lines) == 2
    assert "replication-offset-checkpoint" in lines[0]
    assert ": truncated 12 bytes at byte " in lines[1]
    assert values(tmp_path, "t") == [b"one", b"two", b"three"]


def test_what_recovery_split_or_kept_aside_is_a_warning(tmp_path):
    produce("one\n", tmp_path, "-t", "wide")
    produce("one\n", tmp_path, "-t", "lost")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    wide(tmp_path / "wide-0")
    with (tmp_path / "lost-0" / LOG).open("ab") as file:
        file.write(bytes(100) + small(2))
    done = produce("two\n", tmp_path, "-t", "wide")
    assert "the segment at offset 0 spanned more offsets than an index can hold" in done.err
    assert f"segments at 0, {1 << 31}, {(2 << 31) + 5}" in done.err
    done = produce("two\n", tmp_path, "-t", "lost")
    [kept] = (tmp_path / "lost-0").glob("*.cut")
    assert f"a write before it was lost; the bytes are kept in {kept}" in done.err
    assert kept.read_bytes() == bytes(100) + small(2)


def test_too_many_partitions_are_refused_before_anything_is_created(tmp_path):
    done = produce("one\n", tmp_path / "logs", "-t", "t", "--partitions", "1000000")
    assert done.code == 2
    assert "1000000 partitions are too many to create at once" in done.err
    assert not (tmp_path / "logs").exists()


# --- the stream ------------------------------------------------------------------------------------


def test_lines_of_a_slow_stream_are_there_before_it_ends(tmp_path):
    process = subprocess.Popen(
        command("produce", tmp_path / "logs", "-t", "t"), stdin=subprocess.PIPE, bufsize=0
    )
    assert process.stdin is not None
    for number in range(1, 4):
        process.stdin.write(b"%d\n" % number)
        for _ in range(1000):
            try:
                with stratalog.open(tmp_path / "logs", read_only=True) as logs:
                    if "t" in logs.topics() and logs.latest("t") == number:
                        break
            except StratalogError:
                pass  # it is being made
            time.sleep(0.02)
        else:
            pytest.fail(f"line {number} never came")
    process.stdin.close()
    assert process.wait(30) == 0


def test_interrupt_leaves_what_came_and_an_orderly_directory(tmp_path):
    process = subprocess.Popen(
        command("produce", tmp_path / "logs", "-t", "t"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\n")
    log = tmp_path / "logs" / "t-0" / LOG
    while not log.exists() or not log.stat().st_size:
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
    assert values(tmp_path / "logs", "t") == [b"one", b"two"]


LONG = """
import sys
from pathlib import Path
from stratalog.cli.main import main
def peak():  # ru_maxrss would remember the process that started this one
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
class Lines:
    reads, before = 0, 0
    def read1(self, size):
        self.reads += 1
        if self.reads == 10:
            Lines.before = peak()
        return (b"x" * 200 + b"\\n") * 5000 if self.reads <= 60 else b""
class Stdin:
    buffer = Lines()
sys.stdin = Stdin
try:
    main()
finally:
    print(peak() - Lines.before, file=sys.stderr)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_long_stream_stays_in_bounded_memory(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LONG, "produce", tmp_path / "logs", "-t", "t", "-z", "lz4"],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 300_000
    assert int(done.stderr.split()[-1]) < 15 << 20  # the input has 60 MB


def test_standard_input_that_is_closed_is_a_usage_error(tmp_path):
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command("produce", tmp_path / "logs", "-t", "t")],
        capture_output=True,
    )
    assert (closed.returncode, closed.stderr) == (
        2, b"stratalog: standard input is closed: pipe records into the command\n",
    )  # fmt: skip
    assert not (tmp_path / "logs").exists()


class Chunks:
    """A stream that gives its bytes in pieces of any size."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = list(pieces)

    def read1(self, size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def numbered(stream: Any, kind: str = "lines") -> list[RecordLine]:
    return [each for some in read_records(stream, kind) for each in some]


@given(st.binary(max_size=60), st.lists(st.integers(1, 10), max_size=40))
def test_lines_do_not_depend_on_how_they_come(data, sizes):
    pieces, at = [], 0
    for size in [*sizes, 1000]:
        if data[at : at + size]:
            pieces.append(data[at : at + size])
        at += size
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    found = numbered(Chunks(pieces))
    assert [each.fields["value"] for each in found] == [
        each.removesuffix(b"\r") for each in expected
    ]
    assert [each.number for each in found] == list(range(1, len(expected) + 1))


@given(
    st.binary(max_size=100)
    | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace"))
)
def test_any_line_is_a_record_or_named(data):
    try:
        numbered(io.BytesIO(data), "ndjson")
    except UsageError as error:
        assert str(error).startswith("line ")  # noqa: PT017


def test_line_that_never_ends_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr("stratalog.cli.record_lines._LINE_BYTES_MAX", 10_000)
    with pytest.raises(UsageError, match=r"^line 1: more than 10000 bytes"):
        numbered(Chunks([b"x" * 1000] * 11))
    with pytest.raises(UsageError, match=r"^line 4: more than 10000 bytes"):
        numbered(Chunks([b"a\nb", b"c\n\n", b"x" * 9000, b"x" * 2000 + b"\ny"]))
    assert len(numbered(Chunks([b"x" * 1000] * 9))) == 1


def test_groups_are_not_larger_than_what_a_batch_of_work_is():
    groups = list(read_records(io.BytesIO(b"\n" * 20_000), "lines"))
    assert [len(group) for group in groups] == [8192, 8192, 3616]


def test_failing_stream_is_a_storage_error():
    class Failing:
        def read1(self, size: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StorageError, match="standard input: input/output error"):
        numbered(Failing())


def test_random_values_survive_the_way_through_cat_and_produce(tmp_path):
    rng = random.Random(5)
    with stratalog.open(tmp_path / "a") as logs:
        logs.create("t", 3)
        logs.append(
            "t",
            [
                {
                    "key": rng.choice([None, b"", rng.randbytes(5)]),
                    "value": rng.choice([None, b"", rng.randbytes(rng.randrange(300))]),
                    "timestamp": rng.randrange(1_700_000_000_000),
                    "headers": [
                        (rng.choice(["", "h", "\u2028", "ключ"]), rng.choice([None, b"", b"\xff"]))
                        for _ in range(rng.randrange(4))
                    ],
                }
                for _ in range(500)
            ],
        )
    source = run("cat", "-o", "ndjson", tmp_path / "a")
    produce(source.out, tmp_path / "b", "-t", "t", "-i", "ndjson", "-z", "lz4")
    assert run("cat", "-o", "ndjson", tmp_path / "b").out == source.out


def test_command_brings_in_nothing_heavy(tmp_path):
    program = (
        "import sys\nfrom stratalog.cli.main import main\n"
        f"sys.argv = ['stratalog', 'produce', {str(tmp_path / 'logs')!r}, '-t', 't', '-o', 'csv']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted(set(sys.modules) & {'pyarrow', 'numpy', 'cramjam', 'rich', 'asyncio'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"x\n", capture_output=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[1:] == [b"t,0,1,0,0", b""]


def test_no_warning_about_a_topic_that_is_what_the_options_ask_for(tmp_path):
    for _ in range(2):
        done = produce("x\n", tmp_path, "-t", "t", "--partitions", "2", "-c", "retention.ms=-1")
        assert (done.code, done.err) == (0, "")


def test_json_that_is_nested_too_deeply_is_one_line(tmp_path):
    done = produce('{"value": ' + "[" * 100_000 + "\n", tmp_path, "-t", "t", "-i", "ndjson")
    assert done.code == 2
    assert done.err == "stratalog: line 1: not a record: the JSON is nested too deeply\n"


# --- broker configs --------------------------------------------------------------------------------


def properties(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return path


def test_log_dirs_of_the_config_are_used_without_a_directory(tmp_path):
    config = properties(tmp_path, f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}\nnum.partitions=2\n")
    done = produce("x\n", "-t", "t", "--config", config)
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "a" / "t-0").is_dir()
    assert (tmp_path / "b" / "t-1").is_dir()
    done = produce("x\n", tmp_path / "c", "-t", "t", "-p", 0, "--config", config)
    assert done.code == 0
    assert sorted(path.name for path in (tmp_path / "c").glob("t-*")) == ["t-0", "t-1"]


def test_config_has_defaults_that_are_not_stored(tmp_path):
    config = properties(tmp_path, "message.max.bytes=500\n")
    logs = tmp_path / "logs"
    done = produce("x\n" + "y" * 1000 + "\n", logs, "-t", "t", "--config", config)
    assert done.code == 2
    assert "line 2: a batch of 1070 bytes is above max.message.bytes=500" in done.err
    assert produce("y" * 1000 + "\n", logs, "-t", "t").code == 0
    assert values(logs, "t") == [b"x", b"y" * 1000]


def test_names_without_effect_are_noted(tmp_path):
    names = ["listeners", "node.id", *(f"ssl.n{number}" for number in range(10))]
    config = properties(tmp_path, "".join(f"{name}=secret\n" for name in names))
    done = produce("x\n", tmp_path / "logs", "-t", "t", "--config", config)
    assert done.code == 0
    listed = ", ".join(names[:10])
    assert done.err == f"stratalog: note: {config}: no effect here: {listed} and 2 more\n"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            "\nlog.retention.hour=1\n",
            2,
            "line 2: 'log.retention.hour' is not a broker config; did you",
        ),
        ("log.roll.ms=soon\n", 2, "line 1: log.roll.ms: 'soon' is not a whole number"),
        (None, 3, "server.properties: no such file or directory"),
        ("log.roll.ms=5\n", 2, "no log directory: name one, or give --config with log.dirs"),
    ],
)
def test_wrong_config_file_changes_nothing(tmp_path, monkeypatch, text, code, said):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        properties(tmp_path, text)
    done = produce("x\n", "-t", "t", "--config", "server.properties")
    assert (done.code, said in done.err) == (code, True), done.err
    assert done.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == (["server.properties"] if text else [])


def test_without_directory_and_config_there_is_nothing_to_write_to():
    done = produce("x\n", "-t", "t")
    assert (done.code, "no log directory" in done.err) == (2, True)
