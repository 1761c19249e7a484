"""Logs in an object store: the same answers as from a disk, and only the bytes that are needed."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as arrow_fs
import pytest

import stratalog
from stratalog.errors import StorageError, UsageError
from stratalog.inspect.count.partition import count_partition
from stratalog.inspect.partition.ends import partition_ends
from stratalog.inspect.partition.offset_for_time import offset_for_time
from stratalog.inspect.partition.sources import find_sources
from stratalog.inspect.range.plan import plan_range
from stratalog.inspect.range.split import split_ranges
from stratalog.storage.files.filesystem import OsFileSystem
from stratalog.storage.files.object_store import ObjectStore, is_uri, open_store
from stratalog.storage.views.log_view import Isolation
from tests.inspect.ranges import between, read, source_of, whole
from tests.inspect.replacing import fill, replacement
from tests.judges.peers.golden import golden_set
from tests.storage.logs import T, batch, open_log

BUCKET = "logs"


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    """An S3 on loopback, with a bucket of golden sets."""
    from moto.server import ThreadedMotoServer

    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {
        "endpoint_override": f"{host}:{port}",
        "scheme": "http",
        "access_key": "nobody",
        "secret_key": "nothing",
        "region": "us-east-1",
    }
    try:
        writer = arrow_fs.S3FileSystem(**given, allow_bucket_creation=True)
        writer.create_dir(BUCKET)
        for name in ("v2-plain", "v2-transactions", "v2-delete-records", "v1-gzip", "v07-plain"):
            upload(writer, golden_set(name).path, f"{BUCKET}/{name}")
        yield given
    finally:
        server.stop()


def upload(writer: arrow_fs.FileSystem, folder: Path, target: str) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (".txt", ".jsonl"):
            with writer.open_output_stream(f"{target}/{path.relative_to(folder)}") as out:
                out.write(path.read_bytes())


#: Golden sets with more requests than a quick test makes.
LARGER = ("v2-plain", "v2-transactions")


@pytest.fixture
def store(options) -> ObjectStore:
    found, _ = open_store(f"s3://{BUCKET}", options)
    assert isinstance(found, ObjectStore)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "v2-delete-records",
        "v1-gzip",
        *(pytest.param(name, marks=pytest.mark.proof) for name in LARGER),
    ],
)
def test_everything_is_as_from_a_disk(store, name):
    here = find_sources(str(golden_set(name).path))
    there = find_sources(f"/{BUCKET}/{name}", file_system=store)
    assert [each.topic_partition for each in there.partitions] == [
        each.topic_partition for each in here.partitions
    ]
    for near, far in zip(here.partitions, there.partitions, strict=True):
        assert far.log_start == near.log_start
        ends = partition_ends(near, stable=True)
        assert partition_ends(far, store, stable=True) == ends
        for isolation in Isolation.UNCOMMITTED, Isolation.COMMITTED:
            start, end = ends.start + 3, max(ends.end - 5, ends.start + 3)
            wanted = read(plan_range(near, start, end, isolation=isolation))
            planned = plan_range(far, start, end, store, isolation=isolation, cut_bytes=500)
            assert read(planned, file_system=store) == wanted
            groups = split_ranges([planned], split_bytes=700)
            parts = [part for group in groups for part in group]
            assert read(*parts, file_system=store) == wanted
        time = whole(near)[-1][1] if whole(near) else 0
        assert offset_for_time(far, time, store) == offset_for_time(near, time)
        counted = count_partition(far, file_system=store)
        assert [each.file.records for each in counted.segments] == [
            each.file.records for each in count_partition(near).segments
        ]


@pytest.mark.parametrize("name", ["v2-plain", "v1-gzip", "v07-plain"])
def test_a_scan_takes_the_store_or_a_uri(store, name, options, monkeypatch):
    columns = ["topic", "partition", "offset", "value"]
    wanted = stratalog.scan(str(golden_set(name).path), columns=columns).to_table()
    found = stratalog.scan(f"/{BUCKET}/{name}", columns=columns, file_system=store).to_table()
    assert found == wanted
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret_key"])
    asked = f"endpoint_override={options['endpoint_override']}&scheme=http&region=us-east-1"
    uri = f"s3://{BUCKET}/{name}?{asked}"
    assert stratalog.scan(uri, columns=columns).to_table() == wanted


def test_only_the_bytes_that_are_needed_are_fetched(store, options, tmp_path):
    log = open_log(tmp_path / "large-0", {"segment.bytes": 16 << 20})
    for number in range(3000):
        log.append(batch(*[b"%4000d" % number] * 4, timestamp=T + number))
    log.close()
    source = source_of(tmp_path / "large-0")
    total = sum(Path(path).stat().st_size for path in source.segments)
    upload(arrow_fs.S3FileSystem(**options), tmp_path / "large-0", f"{BUCKET}/large/large-0")
    (far,) = find_sources(f"/{BUCKET}/large", file_system=store).partitions
    assert store.bytes_fetched == 0
    assert partition_ends(far, store).end == 12_000
    assert store.bytes_fetched < 1 << 20
    store.bytes_fetched = 0
    planned = plan_range(far, 6_000, 7_200, store)
    rows = read(planned, file_system=store)
    assert rows == between(whole(source), 6_000, 7_200)
    assert planned.size_bytes < store.bytes_fetched < planned.size_bytes + (1 << 20)
    assert store.bytes_fetched < 0.15 * total
    # All of it, in tasks: hardly more than all of it.
    store.bytes_fetched = 0
    planned = plan_range(far, file_system=store, cut_bytes=1 << 20)
    parts = [part for group in split_ranges([planned], split_bytes=8 << 20) for part in group]
    assert len(parts) >= 6
    assert len(read(*parts, file_system=store)) == 12_000
    assert store.bytes_fetched < 1.1 * total


def test_it_goes_to_another_process(store):
    other = pickle.loads(pickle.dumps(store))
    assert other.stat(f"/{BUCKET}/v2-plain/meta.properties") == store.stat(
        f"/{BUCKET}/v2-plain/meta.properties"
    )


def test_what_is_not_there_is_as_on_a_disk(store):
    path = f"/{BUCKET}/v2-plain/nothing"
    assert store.stat(path) is None
    for question in (store.open_readable, store.list_dir):
        with pytest.raises(StorageError) as told:
            question(path)
        assert (told.value.errno, told.value.path) == (errno.ENOENT, path)
    with pytest.raises(StorageError, match="not a regular file"):
        store.stat(f"/{BUCKET}/v2-plain")
    with pytest.raises(StorageError):
        store.open_readable("/nowhere/at/all")


def test_files_are_read_at_any_place(store):
    path = f"/{BUCKET}/v2-plain/meta.properties"
    data = (golden_set("v2-plain").path / "meta.properties").read_bytes()
    file = store.open_readable(path)
    assert (file.size(), file.fileno(), file.path) == (len(data), -1, path)
    for position, size in ((0, 5), (7, 9), (3, 4), (len(data) - 2, 10), (len(data), 1), (10**6, 1)):
        assert file.read(position, size) == data[position : position + size]
    buffer = bytearray(20)
    assert file.read_into(len(data) - 6, memoryview(buffer)) == 6
    assert buffer[:6] == data[-6:]
    with pytest.raises(StorageError, match="cannot be mapped"):
        file.map(0, 10)
    file.close()
    with pytest.raises(StorageError):
        file.read(0, 5)


def test_nothing_is_ever_written(store):
    path = f"/{BUCKET}/v2-plain/x"
    for change in (
        lambda: store.open_writable(path, create=True),
        lambda: store.make_dir(path),
        lambda: store.remove_dir(path),
        lambda: store.rename(path, path),
        lambda: store.link(path, path),
        lambda: store.unlink(path),
        lambda: store.sync_dir(path),
        lambda: store.set_modified(path, 0),
        lambda: store.lock(path),
    ):
        with pytest.raises(StorageError, match="only read") as told:
            change()
        assert told.value.errno == errno.EROFS


def test_uris_and_options(tmp_path):
    assert is_uri("s3://bucket/logs")
    assert not is_uri("/logs")
    files, paths = open_store([f"file://{tmp_path}"])
    assert isinstance(files, OsFileSystem)
    assert paths == (str(tmp_path),)
    anonymous = {"anonymous": "true", "region": "us-east-1", "connect_timeout": "1.5"}
    _, paths = open_store(["s3://one/logs/", "s3a://two/a/b"], anonymous)
    assert paths == ("/one/logs", "/two/a/b")
    for uris, given, said in (
        ([], None, "no URI"),
        ("logs", None, "no URI"),
        (["s3://one", "file:///two"], None, "several stores"),
        ("s3:///logs", None, "names a bucket"),
        ("s3://one", {"colour": "red"}, "no option 'colour'"),
        ("s3://one?colour=red", None, "no option 'colour'"),
        (["s3://one?region=a", "s3://one"], None, "different options"),
        ("s3://one", {"anonymous": "perhaps"}, "true or false"),
        ("s3://one", {"connect_timeout": "soon"}, "a number"),
        ("file:///logs", {"region": "x"}, "are for s3://"),
        ("nonsense://one/two", None, "nonsense"),
    ):
        with pytest.raises(UsageError, match=said):
            open_store(uris, given)


def test_keys_may_stand_before_the_bucket_and_are_never_shown(store, options):
    keys = f"{options['access_key']}:a%2Fb%40c"
    rest = "&".join(f"{name}={options[name]}" for name in ("endpoint_override", "scheme", "region"))
    files, paths = open_store(f"s3://{keys}@{BUCKET}/v2-plain?{rest}")
    assert paths == (f"/{BUCKET}/v2-plain",)
    assert files.list_dir(paths[0])
    for uris in (
        [f"s3://{keys}@one?secret_key=hidden", "file:///two"],
        [f"s3://{keys}@one?secret_key=hidden", "logs"],
        [f"nonsense://{keys}@one?secret_key=hidden"],
    ):
        with pytest.raises(UsageError) as told:
            open_store(uris)
        assert "one" in str(told.value)
        assert not any(secret in str(told.value) for secret in ("a%2F", "a/b", "hidden"))


def test_a_replacement_that_was_interrupted_is_read_as_it_would_be_finished(
    store, options, tmp_path
):
    fill(tmp_path / "t-0")
    everything = whole(source_of(tmp_path / "t-0"))
    steps, decided = replacement(tmp_path / "t-0", is_compacted=False)
    for step in steps[: decided + 9]:
        step()
    upload(arrow_fs.S3FileSystem(**options), tmp_path, f"{BUCKET}/interrupted")
    (source,) = find_sources(f"/{BUCKET}/interrupted", file_system=store).partitions
    assert {Path(path).suffix for path in source.segments} == {".log", ".swap"}
    assert read(plan_range(source, file_system=store), file_system=store) == everything
