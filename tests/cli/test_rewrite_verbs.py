"""The rewriting verbs: plans that change nothing, what they print, and how they fail."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import StorageError
from stratalog.manager.logs import Logs
from stratalog.rewrite.manifest import ManifestFile
from tests.cli.runner import command, environment, run, spawn
from tests.cli.test_read_only import state
from tests.judges.peers.golden import golden_set
from tests.rewrite.directories import filled, is_sound, rows

VERBS = {
    "merge": ["-c", "segment.bytes=1048576", "-c", "internal.segment.bytes=1048576"],
    "recompress": ["-z", "zstd"],
    "erase": ["--key", "k1", "--where", "header.user = 'u1'"],
    "upgrade": [],
    "reindex": [],
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_plan_changes_no_byte(tmp_path: Path, verb: str) -> None:
    folder = filled(tmp_path / "logs")
    before = state(folder), sorted(folder.rglob("*")), folder.stat().st_mtime_ns
    done = run(verb, folder, *VERBS[verb])
    assert done.code == 0, done.err
    assert {row["status"] for row in done.rows()} <= {"planned", "left", "ok"}
    assert (state(folder), sorted(folder.rglob("*")), folder.stat().st_mtime_ns) == before


@pytest.mark.parametrize("verb", VERBS)
def test_with_write_it_is_carried_out(tmp_path: Path, verb: str) -> None:
    folder = filled(tmp_path / "logs")
    before = rows(folder)
    options = [] if verb == "reindex" else ["--manifest", tmp_path / "m.json", "--keep-undo"]
    done = run(verb, folder, *VERBS[verb], "--write", "--roll", *options)
    assert done.code == 0, done.err
    if verb == "erase":
        before = [row for row in before if row[4] != b"k1" and ("user", b"u1") not in row[6]]
    assert rows(folder) == before
    assert is_sound(folder)
    assert (tmp_path / "m.json").exists() == bool(options)
    again = run(verb, folder, *VERBS[verb])
    assert {row["status"] for row in again.rows()} <= {"left", "ok"}


def test_topics_and_partitions_are_chosen(tmp_path: Path) -> None:
    with stratalog.open(tmp_path / "logs") as logs:
        for topic in ("a", "b"):
            logs.create(topic, 2)
            for partition in (0, 1):
                logs.append(topic, ["x"], partition=partition)
    done = run("merge", tmp_path / "logs", "-t", "b", "-p", "1")
    assert [(row["topic"], row["partition"]) for row in done.rows()] == [("b", 1)]
    assert run("merge", tmp_path / "logs", "-t", "c").code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["merge", "{missing}"], 3, "no such log directory"),
        (["merge", "{missing}", "--write"], 3, "no such log directory"),
        (["merge", "{logs}", "--keep-undo"], 2, "--keep-undo has no meaning without --write"),
        (["merge", "{logs}", "-c", "segment.byte=1"], 2, "did you mean segment.bytes"),
        (["merge", "{logs}", "-c", "segment.bytes"], 2, "write NAME=VALUE"),
        (["recompress", "{logs}", "-z", "zstd", "--level", "99"], 2, "no level 99"),
        (["recompress", "{logs}", "-z", "brotli"], 2, "brotli"),
        (["erase", "{logs}"], 2, "nothing is named"),
        (["erase", "{logs}", "--keys", "{empty}"], 2, "holds no key"),
        (["erase", "{logs}", "--key-hashes", "{bad}"], 2, "line 1 is not an MD5"),
        (["erase", "{logs}", "--where", "key ="], 2, "condition"),
        (["undo", "{logs}", "20240101T000000000-merge"], 2, "nothing is kept"),
        (["undo", "{logs}", "--write"], 2, "name the rewrite by its id"),
        (["upgrade", "{logs}", "--to", "{missing}"], 2, "no partition of Kafka 0.7"),
        (["verify", "{logs}", "--absent", "{empty}"], 2, "holds no key"),
        (["compact", "{logs}", "-t", "t", "--max-bytes", "1000"], 2, "--max-bytes has no meaning"),
        (["compact", "{logs}", "-t", "t", "--max-bytes", "1", "--write"], 2, "--max-seconds"),
        (["merge", "{logs}", "--max-seconds", "inf"], 2, "--max-seconds is a number"),
        (["merge", "{logs}", "--max-seconds", "nan", "--write"], 2, "--max-seconds is a number"),
        (["reindex", "{logs}", "--max-seconds", "inf", "--write"], 2, "--max-seconds is a number"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_changes_nothing(
    tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    folder = filled(tmp_path / "logs", 30)
    (tmp_path / "empty").write_text("")
    (tmp_path / "bad").write_text("not a hash\n")
    before = state(tmp_path)
    names = {name: tmp_path / name for name in ("logs", "missing", "empty", "bad")}
    done = run(*(each.format(**names) for each in arguments))
    assert (done.code, done.out) == (code, b"")
    assert text in done.err
    assert state(tmp_path) == before
    assert folder.exists()


def test_a_directory_in_use_is_refused_for_writing_and_planned_all_the_same(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    with stratalog.open(folder):
        done = spawn("merge", folder, "--write")
        assert done.code == 3
        assert "locked by a broker or another writer: stop it first" in done.err
        assert "read_only" not in done.err
        assert run("merge", folder).code == 0


def test_absence_is_proved_only_if_every_file_was_searched(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    keys = tmp_path / "keys"
    keys.write_text("k1\nk2\n")

    def absent() -> tuple[int, set[str]]:
        done = run("verify", folder, "--absent", keys)
        return done.code, {row["status"] for row in done.rows()}

    assert absent()[0] == 1
    assert run("erase", folder, "--keys", keys, "--roll", "--write", "--keep-undo").code == 0
    assert absent() == (1, {"ok", "found"})  # what is kept for undo still holds them
    rewrite_id = run("undo", folder).rows()[0]["id"]
    assert run("undo", folder, rewrite_id, "--forget").rows()[0]["status"] == "dropped"
    assert absent() == (0, {"ok"})
    stray = folder / "t-0" / "copy.bak"
    stray.write_bytes(b"k1")
    assert absent() == (1, {"ok", "unknown"})
    stray.unlink()
    first = min((folder / "t-0").glob("*.log"))
    data = bytearray(first.read_bytes())
    first.with_suffix(".log.deleted").write_bytes(data[:-5])
    assert absent() == (1, {"ok", "unreadable"})


def test_undo_restores_and_refuses(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    before = rows(folder)
    run("erase", folder, "--key", "k1", "--roll", "--write", "--keep-undo")
    (listed,) = run("undo", folder).rows()
    assert (listed["verb"], listed["status"]) == ("erase", "kept")
    assert run("undo", folder, listed["id"]).rows()[0]["status"] == "planned"
    assert run("undo", folder, listed["id"], "--write").rows()[0]["status"] == "restored"
    assert rows(folder) == before
    run("erase", folder, "--key", "k1", "--write", "--keep-undo")
    (listed,) = run("undo", folder).rows()
    run("merge", folder, "--write", "-c", "internal.segment.bytes=1000000")
    refused = run("undo", folder, listed["id"])
    assert (refused.code, refused.rows()[0]["status"]) == (1, "refused")
    assert run("undo", folder, listed["id"], "--write").code == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_a_sound_log(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "logs"
    with stratalog.open(folder) as logs:
        logs.create("t", 1, {"segment.bytes": 1 << 20})
        for _ in range(12):
            logs.append("t", [os.urandom(1000) for _ in range(1000)], sync=False)
    before = rows(folder)
    done = subprocess.Popen(
        command("recompress", folder, "-z", "gzip", "--level", "9", "--write"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(folder.rglob("*.cleaned")) and time.monotonic() < deadline:
        if done.poll() is not None:
            break
    done.send_signal(number)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 130, (out, err)
    assert b"Traceback" not in err
    assert rows(folder) == before
    assert is_sound(folder)
    assert not list(folder.rglob("*.cleaned"))


@pytest.mark.parametrize("name", ["v07-gzip", "v07-plain", "v07-snappy"])
def test_files_of_0_7_are_upgraded_into_a_new_directory(tmp_path: Path, name: str) -> None:
    source = golden_set(name).path
    before = state(source)
    assert run("upgrade", source, "--to", tmp_path / "new").rows()[0]["status"] == "planned"
    assert not (tmp_path / "new").exists()
    done = run("upgrade", source, "--to", tmp_path / "new", "--write")
    assert done.code == 0, done.err
    old, new = rows(source), rows(tmp_path / "new")
    assert [row[5] for row in new] == [row[5] for row in old]
    # The first record of each position keeps it.
    starts = [n for n, row in enumerate(old) if not n or old[n - 1][2] != row[2]]
    assert [new[n][2] for n in starts] == [old[n][2] for n in starts]
    assert is_sound(tmp_path / "new")
    assert state(source) == before
    assert run("upgrade", source, "--to", tmp_path / "new", "--write").code == 2
    assert "upgrade --to" in run("upgrade", source).err


def test_keys_are_counted_and_spelled_in_one_format(tmp_path: Path) -> None:
    with stratalog.open(tmp_path / "logs") as logs:
        logs.create("t", 1)
        logs.append("t", [(b"\xff\xfe", "v"), ("a", "v"), ("61", "v")])
    keys = tmp_path / "keys"
    keys.write_bytes(b"61\n61\nfffe\n")
    options = ["--roll", "--write", "--key-format", "hex"]
    done = run("erase", tmp_path / "logs", "--keys", keys, "--key", "fffe", *options)
    assert done.err == f"stratalog: note: {keys}: 2 different keys\n"
    assert [row[4] for row in rows(tmp_path / "logs")] == [b"61"]
    wrong = run("erase", tmp_path / "logs", "--key", "xy", "--key-format", "hex")
    assert (wrong.code, "'xy' is not an even number" in wrong.err) == (2, True)


def test_a_key_that_is_not_utf8_is_its_bytes(tmp_path: Path) -> None:
    with stratalog.open(tmp_path / "logs") as logs:
        logs.create("t", 1)
        logs.append("t", [(b"\xff\xfe", "v"), ("a", "v")])
    key = os.fsdecode(b"\xff\xfe")
    done = run("erase", tmp_path / "logs", "--key", key, "--roll", "--write")
    assert done.code == 0
    assert [row[4] for row in rows(tmp_path / "logs")] == [b"a"]


@pytest.mark.parametrize(
    "path", ["none/m.json", "logs/m.json", "logs/t-0/m.json", "taken", "link/m.json"]
)
def test_a_manifest_that_cannot_be_written_is_refused_first(tmp_path: Path, path: str) -> None:
    folder = filled(tmp_path / "logs", 30)
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "link").symlink_to(folder)
    before = state(tmp_path)
    done = run("erase", folder, "--key", "k1", "--roll", "--write", "--manifest", tmp_path / path)
    assert (done.code, done.out) == (3 if path.startswith("none") else 2, b"")
    assert str(tmp_path / path.partition("/")[0]) in done.err
    assert state(tmp_path) == before


def test_no_segment_becomes_a_manifest(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs", 30)
    segment = min((folder / "t-0").glob("*.log"))
    done = run("erase", folder, "--key", "none", "--write", "--manifest", segment)
    assert done.code == 2
    assert is_sound(folder)


def test_a_manifest_that_fails_at_the_end_does_not_hide_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = filled(tmp_path / "logs")
    path = tmp_path / "m.json"

    def fail(manifest_file: ManifestFile, manifest: object) -> None:
        raise StorageError("no space left on device", path=str(path))

    monkeypatch.setattr(ManifestFile, "write", fail)
    options = ["--roll", "--write", "--keep-undo", "--manifest", path, "-o", "table"]
    done = run("erase", folder, "--key", "k1", *options)
    assert done.code == 3
    assert "no space left on device" in done.err
    assert b"rewritten" in done.out
    (kept,) = run("undo", folder).rows()
    assert kept["id"].encode() in done.out


def test_a_plan_that_failed_is_not_nothing_to_rewrite(tmp_path: Path) -> None:
    folder = filled(tmp_path / "logs")
    first = min((folder / "t-0").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    done = run("erase", folder, "--key", "k1", "-o", "table")
    assert done.code == 1
    assert b"1 of 1 partitions could not be planned for" in done.out
    assert b"nothing to rewrite" not in done.out


def test_indexes_of_real_kafka_with_times_that_the_log_lost_are_right() -> None:
    done = run("reindex", golden_set("mixed-upgrade").log_dirs[0])
    assert (done.code, {row["status"] for row in done.rows()}) == (0, {"ok"})


def test_an_interrupted_undo_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = filled(tmp_path / "logs")
    run("erase", folder, "--key", "k1", "--roll", "--write", "--keep-undo")
    (listed,) = run("undo", folder).rows()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Logs, "undo", interrupted)
    done = run("undo", folder, listed["id"], "--write")
    assert (done.code, done.out) == (130, b"")
    assert "run the command again to go on" in done.err
