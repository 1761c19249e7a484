"""cat, count and verify on log directories and partitions' folders, and what chooses among them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.runner import run
from tests.inspect.logs import batch, flipped, segment
from tests.judges.peers.golden import golden_set, golden_sets

SETS = [golden for golden in golden_sets("v2-") if not golden.damaged]
TORN = golden_set("v2-torn")
MULTI = golden_set("v2-multi-dir")


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_cat_of_a_log_directory_is_what_kafka_read(golden):
    done = run("cat", "-o", "ndjson", *golden.log_dirs)
    assert done.out == (golden.path / "expected.jsonl").read_bytes()
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_count_of_a_log_directory_is_what_kafka_read(golden):
    done = run("count", *golden.log_dirs)
    assert (done.code, done.err) == (0, "")
    rows = done.rows()
    assert [(row["topic"], row["partition"], row["segments"]) for row in rows] == [
        (p.topic, p.partition, len(p.segments)) for p in golden.partitions()
    ]
    assert sum(row["records"] for row in rows) == len(golden.expected())


@pytest.mark.parametrize("golden", SETS, ids=[golden.name for golden in SETS])
def test_verify_of_a_log_directory_finds_nothing(golden):
    done = run("verify", "--deep", *golden.log_dirs)
    assert done.code == 0
    paths = [str(path) for p in golden.partitions() for path in p.segments]
    assert [row["path"] for row in done.rows() if row["kind"] == "log"] == paths
    assert {row["status"] for row in done.rows()} == {"ok"}


def place(row):
    return row["topic"], row["partition"]


@pytest.mark.parametrize(
    ("options", "topics", "numbers"),
    [
        (["-t", "letters.v1"], {"letters.v1"}, {0}),
        (["-t", "orders*"], {"orders.grove-6"}, {0, 1, 2, 3}),
        (["-t", "orders*", "-p", "0,2-9"], {"orders.grove-6"}, {0, 2, 3}),
        (
            ["-t", "letters.v1", "-t", "orders.grove-6", "-p", "0"],
            {"letters.v1", "orders.grove-6"},
            {0},
        ),
        (
            ["--topic", "letters.v1,orders*", "--partition", "0"],
            {"letters.v1", "orders.grove-6"},
            {0},
        ),
        (["-p1"], {"orders.grove-6"}, {1}),
    ],
)
def test_topics_and_partitions_choose_for_every_verb(options, topics, numbers):
    for verb in ("cat", "count", "verify", "ls"):
        done = run(verb, *options, *MULTI.log_dirs)
        assert done.code == 0, done.err
        assert {row["topic"] for row in done.rows()} == topics
        assert {row["partition"] for row in done.rows()} == numbers


@pytest.mark.parametrize("verb", ["cat", "count", "verify", "ls"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["-t", "ordrs"],
            "stratalog: no topic 'ordrs'; found letters.v1, orders.grove-6\n",
        ),
        (["-p", "7"], "stratalog: no partition 7; found letters.v1-0, orders.grove-6-0, "),
        (["-p", "x"], "stratalog: 'x' is not a partition: write 0 or 0,2-5\n"),
        (["-t", "a b"], "stratalog: 'a b' is not a topic name: "),
    ],
)
def test_a_wrong_wish_is_exit_code_2_and_leaves_no_output(tmp_path, verb, options, said):
    out = tmp_path / "out.json"
    done = run(verb, *options, "--out", out, *MULTI.log_dirs)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(said)
    assert done.err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("verb", ["cat", "count"])
@pytest.mark.parametrize("written", [["--offsets", "-5"], ["--offsets=-5"]])
def test_offsets_that_begin_with_a_minus(verb, written):
    done = run(verb, *written, *MULTI.log_dirs)
    assert done.code == 0, done.err
    rows = done.rows()
    if verb == "count":
        assert [row["records"] for row in rows] == [5] * 5
        assert [row["last_offset"] - row["first_offset"] for row in rows] == [4] * 5
    else:
        assert len(rows) == 25


def test_offsets_in_every_form_agree_between_cat_and_count():
    golden = golden_set("v2-delete-records")
    for offsets in (
        "+3",
        ":+4",
        "30:100",
        "-9:-2",
        ":50",
        "@2024-03-13T04:27:00Z:40s",
        "@:-1h",
        "end",
    ):
        records = run("cat", "--offsets", offsets, golden.path).rows()
        counts = run("count", "--offsets", offsets, golden.path).rows()
        assert [
            (p, len([row for row in records if place(row) == p])) for p in map(place, counts)
        ] == [(place(row), row["records"]) for row in counts]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--offsets", "nonsense"], "'nonsense' is not a range of offsets: write 100, "),
        (["--offsets", "9:3"], "end before they start"),
        (["--offsets", "5", "--start", "3"], "offsets cannot be combined"),
        (["--offsets", "@-1h", "--end-time", "2024-01-01"], "offsets cannot be combined"),
    ],
)
def test_wrong_offsets_are_exit_code_2(options, said):
    done = run("cat", *options, *MULTI.log_dirs)
    assert (done.code, done.out) == (2, b"")
    assert said in done.err
    assert run("count", "--offsets", "nonsense", *MULTI.log_dirs).code == 2


def test_count_by_file_partition_and_topic():
    by = {
        name: run("count", "--by", name, *MULTI.log_dirs).rows()
        for name in ("file", "partition", "topic")
    }
    assert [len(rows) for rows in by.values()] == [12, 5, 2]
    assert {sum(row["records"] for row in rows) for rows in by.values()} == {192}
    assert {sum(row["batches"] for row in rows) for rows in by.values()} != {0}
    assert by["topic"][1]["partitions"] == 4
    assert sum(row["segments"] for row in by["partition"]) == 12
    default = run("count", *MULTI.log_dirs)
    assert default.rows() == by["partition"]
    files = [path for p in MULTI.partitions() for path in p.segments]
    assert run("count", *files).rows() == by["file"]
    assert run("count", "--by", "partition", *files).rows() == by["partition"]
    assert run("count", "--by", "topic", *files).rows() == by["topic"]


def test_the_total_of_a_table_adds_up():
    lines = run("count", "-o", "table", *MULTI.log_dirs).out.decode().splitlines()
    assert lines[-1].split()[:3] == ["total", "12", "192"]
    lines = run("count", "-o", "table", "--by", "topic", *MULTI.log_dirs).out.decode().splitlines()
    assert lines[-1].split()[:4] == ["total", "5", "12", "192"]
    single = run("count", "-o", "table", "-t", "letters.v1", MULTI.log_dirs[0]).out.decode()
    assert "total" not in single


@pytest.mark.parametrize("by", ["file", "partition", "topic"])
def test_a_torn_tail_warns_and_damage_fails_whatever_a_row_is(tmp_path, by):
    segment(tmp_path, 0, batch(0) + batch(3)[:-1])
    done = run("count", "--by", by, tmp_path)
    assert (done.code, done.rows()[0]["records"]) == (0, 3)
    assert done.err.startswith("stratalog: warning: ")
    segment(tmp_path, 6, batch(6) + flipped(batch(9), 16, 6))
    done = run("count", "--by", by, tmp_path)
    assert (done.code, sum(row["records"] for row in done.rows())) == (1, 6)
    assert [line.startswith("stratalog: warning: ") for line in done.err.splitlines()] == [
        False
    ] * 2


def test_cat_of_a_damaged_partition_leaves_the_others_to_be_chosen():
    assert run("cat", TORN.path).code == 1
    done = run("cat", "-p", "0,2", TORN.path)
    assert done.code == 0
    assert {row["partition"] for row in done.rows()} == {0, 2}
    assert len(done.err.splitlines()) == 2


def test_verify_tells_what_it_does_not_know():
    done = run("verify", "-p", "1", TORN.path)
    assert done.code == 1
    assert done.err.startswith(
        f"stratalog: note: {TORN.path}: unknown files, ignored: dump-index.txt"
    )
    rows = [row for row in done.rows() if row["kind"] == "log"]
    assert [row["status"] for row in rows] == ["ok", "damaged", "ok"]


def test_a_damaged_checkpoint_is_a_warning_for_every_verb(tmp_path):
    copy = tmp_path / "logs"
    shutil.copytree(golden_set("v2-delete-records").path, copy)
    (copy / "log-start-offset-checkpoint").write_text("0\n7\n")
    for verb in ("cat", "count", "verify", "ls"):
        done = run(verb, copy)
        assert done.code == (1 if verb == "verify" else 0)
        assert "log-start-offset-checkpoint" in done.err
        assert "deleted records may be shown" in done.err
    assert len(run("cat", copy).rows()) > 155


def test_empty_partitions_count_as_nothing(tmp_path):
    segment(tmp_path, 0, b"", partition="empty-0")
    (tmp_path / "bare-3").mkdir()
    done = run("count", tmp_path)
    assert [(row["topic"], row["records"], row["segments"]) for row in done.rows()] == [
        ("bare", 0, 0),
        ("empty", 0, 1),
    ]
    assert run("cat", tmp_path).out == b""
    assert json.loads(run("cat", "-o", "json", tmp_path).out) == []
    assert run("verify", tmp_path / "bare-3").out == b""


def test_a_folder_without_logs_is_exit_code_3(tmp_path):
    for verb in ("cat", "count", "verify", "ls"):
        done = run(verb, tmp_path)
        assert done.code == 3
        assert f"{tmp_path}: not a log directory or partition folder" in done.err


def test_one_partition_twice_is_exit_code_2(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(MULTI.log_dirs[0], copy)
    done = run("cat", MULTI.log_dirs[0], copy)
    assert (done.code, "letters.v1-0 is in" in done.err) == (2, True)


def test_files_that_vanish_are_a_warning(tmp_path, monkeypatch):
    """The folder is listed, then a broker deletes a segment: the rest is read."""
    paths = [segment(tmp_path, 3 * n, batch(3 * n)) for n in range(4)]
    from stratalog.inspect.partition import sources

    plain = sources.find_sources

    def find_and_delete(*arguments, **options):
        found = plain(*arguments, **options)
        Path(paths[0]).unlink()
        return found

    for verb, module in [
        ("cat", "stratalog.inspect.scan"),
        ("verify", "stratalog.cli.commands.verify"),
        ("count", "stratalog.cli.commands.count"),
        ("ls", "stratalog.cli.commands.ls"),
    ]:
        segment(tmp_path, 0, batch(0))
        run(verb, "--help")
        with monkeypatch.context() as patched:
            patched.setattr(f"{module}.find_sources", find_and_delete)
            done = run(verb, tmp_path)
        assert done.code == 0
        if verb in ("cat", "verify"):
            assert done.err == (
                f"stratalog: warning: {paths[0]} was deleted before it could be read\n"
            )
        if verb == "cat":
            assert [row["offset"] for row in done.rows()] == list(range(3, 12))
        else:
            assert sum(row["records"] for row in done.rows()) == 9


def test_many_partitions_are_read_without_running_out_of_files(tmp_path):
    import resource

    for number in range(300):
        segment(tmp_path, 0, batch(0), partition=f"orders-{number}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        assert len(run("cat", tmp_path).rows()) == 900
        assert len(run("ls", tmp_path).rows()) == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
