"""docs/formats/partition-folder.md: its examples decode to what stands beside them, encode to the same
bytes, and are what a real broker wrote; its tables name what the code names."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from stratalog.manager.root.topic_file import TopicFile
from stratalog.manager.write.transactions import TransactionJournal
from stratalog.storage import names
from stratalog.storage.epochs.leader_epochs import LeaderEpochs
from stratalog.storage.formats.checkpoints import decode_offsets, encode_offsets
from stratalog.storage.formats.clean_shutdown import decode_clean_shutdown, encode_clean_shutdown
from stratalog.storage.formats.meta_properties import decode_meta_properties, encode_meta_properties
from stratalog.storage.formats.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
)
from stratalog.storage.producers.snapshot import decode_snapshot, encode_snapshot
from stratalog.storage.segment.index_entries import offset_entry_at, time_entry_at
from stratalog.storage.segment.txn_index import decode_entries, encode_entry
from stratalog.testing import MemoryFileSystem

ROOT: Final = Path(__file__).resolve().parents[3]
DOCS: Final = ROOT / "docs" / "formats"
GOLDEN: Final = ROOT / "tests" / "golden"
PAGE: Final = (DOCS / "partition-folder.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Example:
    name: str
    data: bytes
    expect: dict[str, Any]

    def __str__(self) -> str:
        return self.name


def hex_column(text: str) -> bytes:
    lines = []
    for line in text.splitlines():
        match = re.fullmatch(r"((?:[0-9a-f]{2} {1,2})*[0-9a-f]{2})(?: {3,}\S.*)?", line)
        assert match, f"not bytes and a comment: {line!r}"
        lines.append(bytes.fromhex(match[1]))
    return b"".join(lines)


def read_examples() -> list[Example]:
    blocks = re.findall(r"^```(\w+) (\w+)=([\w-]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    found = []
    for (kind, what, name, body), (*after, expected) in zip(blocks[::2], blocks[1::2], strict=True):
        assert (what, after) == ("example", ["json", "expect", name])
        expect = json.loads(expected)
        data = hex_column(body) if kind == "hex" else body.encode()
        if expect["format"] in ("partition-metadata", "clean-shutdown", "transactions"):
            data = data.removesuffix(b"\n")  # these end without one
        found.append(Example(name, data, expect))
    return found


EXAMPLES: Final = read_examples()
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=str)


def in_memory(name: str, data: bytes) -> MemoryFileSystem:
    file_system = MemoryFileSystem(folders=["/logs"])
    file = file_system.open_writable(f"/logs/{name}", create=True)
    file.write_at(0, data)
    file.close()
    return file_system


def decoded(example: Example) -> dict[str, Any]:
    """What our readers make of an example, in the words of the page."""
    data, expect = example.data, example.expect
    match expect["format"]:
        case "offset-index":
            base = expect["base_offset"]
            return {
                "entries": [list(offset_entry_at(data, n, base)) for n in range(len(data) // 8)]
            }
        case "time-index":
            base = expect["base_offset"]
            return {"entries": [list(time_entry_at(data, n, base)) for n in range(len(data) // 12)]}
        case "txn-index":
            return {"entries": [list(each) for each in decode_entries(data, expect["base_offset"])]}
        case "snapshot":
            return {
                "entries": [
                    [
                        each.producer_id, each.epoch, each.last_sequence,
                        each.batches[-1].last_offset, each.batches[-1].offset_delta,
                        each.last_timestamp, each.coordinator_epoch,
                        -1 if each.txn_first_offset is None else each.txn_first_offset,
                    ]
                    for each in decode_snapshot(data)
                ]
            }  # fmt: skip
        case "offsets":
            return {"entries": [[*place, offset] for place, offset in decode_offsets(data).items()]}
        case "epochs":
            return {"entries": [list(each) for each in LeaderEpochs.decode(data).entries]}
        case "partition-metadata":
            found = decode_partition_metadata(data)
            return {"version": found.version, "topic_id": found.topic_id.hex()}
        case "meta-properties":
            meta = decode_meta_properties(data)
            assert meta.directory_id is not None
            return {
                "version": meta.version, "node_id": meta.node_id, "cluster_id": meta.cluster_id,
                "directory_id": meta.directory_id.hex(),
            }  # fmt: skip
        case "clean-shutdown":
            return {"broker_epoch": decode_clean_shutdown(data)}
        case "topics":
            topics = TopicFile(in_memory(names.STRATALOG_TOPICS, data), "/logs")
            topics.read()
            return {
                "entries": [
                    [
                        each.topic.name, (each.topic.topic_id or b"").hex(),
                        list(each.topic.partitions), each.topic.config.overrides(),
                        {name: list(parts) for name, parts in (each.plan or {}).items()},
                        None if each.deletion is None
                        else [each.deletion.mark, list(each.deletion.directories)],
                    ]
                    for each in topics.entries.values()
                ],
                "deleted": list(topics.deleted_folders),
            }  # fmt: skip
        case "transactions":
            journal = TransactionJournal(in_memory(names.STRATALOG_TRANSACTIONS, data), "/logs")
            journal.read()
            return {
                "entries": [
                    [
                        e.producer_id,
                        e.producer_epoch,
                        e.state,
                        [list(p) for p in e.topic_partitions],
                    ]
                    for e in journal.entries
                ]
            }
    raise AssertionError(f"no such format: {expect['format']}")


def encoded(example: Example) -> bytes:
    """What our writers make of what was read."""
    data, expect = example.data, example.expect
    match expect["format"]:
        case "offset-index" | "time-index":
            return data  # written by the kernel: test_index_rebuild.py holds it to the golden files
        case "txn-index":
            return b"".join(map(encode_entry, decode_entries(data, expect["base_offset"])))
        case "snapshot":
            return encode_snapshot(decode_snapshot(data))
        case "offsets":
            return encode_offsets(decode_offsets(data))
        case "epochs":
            return LeaderEpochs.decode(data).encode()
        case "partition-metadata":
            return encode_partition_metadata(decode_partition_metadata(data).topic_id)
        case "meta-properties":
            written = data.splitlines()[1][1:].decode()
            return encode_meta_properties(decode_meta_properties(data), written=written)
        case "clean-shutdown":
            return encode_clean_shutdown(decode_clean_shutdown(data))
        case "topics":
            file_system = in_memory(names.STRATALOG_TOPICS, data)
            topics = TopicFile(file_system, "/logs")
            topics.read()
            topics.put(topics.entries["orders"])
            return file_system.read_bytes(f"/logs/{names.STRATALOG_TOPICS}")
        case "transactions":
            file_system = in_memory(names.STRATALOG_TRANSACTIONS, data)
            journal = TransactionJournal(file_system, "/logs")
            journal.read()
            journal.put(journal.entries[0])
            return file_system.read_bytes(f"/logs/{names.STRATALOG_TRANSACTIONS}")
    raise AssertionError(f"no such format: {expect['format']}")


@each_example
def test_example_decodes_to_what_stands_beside_it(example: Example) -> None:
    found = decoded(example)
    assert found == {name: example.expect[name] for name in found}
    assert set(example.expect) - set(found) <= {"format", "source", "base_offset"}


@each_example
def test_writers_make_the_same_bytes(example: Example) -> None:
    assert encoded(example) == example.data


@each_example
def test_example_with_a_source_is_what_a_broker_wrote(example: Example) -> None:
    source = example.expect.get("source")
    if source is None:
        assert example.name in ("topics", "transactions")
        return
    (path,) = GOLDEN.glob(source.get("glob") or source["file"])
    assert path.read_bytes() == example.data


def table(heading: str) -> list[list[str]]:
    part = re.split(rf"^#+ {re.escape(heading)}$", PAGE, flags=re.MULTILINE)[1]
    lines = []
    for line in part.splitlines():
        if line.startswith("|"):
            lines.append([cell.strip() for cell in line.split("|")[1:-1]])
        elif lines:
            break
    assert {len(row) for row in lines} == {len(lines[0])}
    return lines[2:]


def test_names_of_a_log_directory_are_those_of_the_code():
    listed = {row[0].strip("`") for row in table("In a log directory")}
    files = {name for name in listed if "<" not in name}
    known = {
        names.LOCK, names.META_PROPERTIES, names.BOOTSTRAP_CHECKPOINT, names.RECOVERY_CHECKPOINT,
        names.LOG_START_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT, names.CLEANER_CHECKPOINT,
        names.CLEAN_SHUTDOWN, names.STRATALOG_TOPICS, names.STRATALOG_TRANSACTIONS,
        names.STRATALOG_COMMITS, names.STRATALOG_COMMITS_UNSYNCED, *names.FOREIGN_ROOT_DIRS,
    }  # fmt: skip
    assert files == known
    for name in listed - files:
        made = (
            name.replace("<topic>", "a-b").replace("<partition>", "7").replace("<32 hex>", "0" * 32)
        )
        assert names.parse_partition_dir(made) == ("a-b", 7)
        assert names.is_marked_partition_dir(made) == ("hex" in name)


def test_names_in_a_partitions_folder_are_those_of_the_code():
    listed = {row[0].strip("`") for row in table("In a partition's folder")}
    kinds = {str(kind) for kind in names.FileKind} - {".kafka"}
    stages = {str(stage) for stage in names.Stage} - {""}
    assert listed == {
        *(f"NNN{kind}" for kind in kinds),
        *(f"NNN.<kind>{stage}" for stage in stages),
        names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA, names.FAILED_SYNC,
        "NNN.log.<position>.cut", names.undo_dir_name("id").replace("id", "<id>"),
    }  # fmt: skip
    assert names.segment_file_name(7, names.FileKind.LOG) == f"{7:020d}.log"


def test_page_is_plain_markdown():
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^# .+$", prose, re.MULTILINE) == [PAGE.splitlines()[0]]
    outside = prose.splitlines()
    assert max(map(len, outside)) <= 120
    assert not re.search(r"[ \t]$", PAGE, re.MULTILINE)
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", prose):
        linked = (DOCS / (target or "partition-folder.md")).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", linked, re.MULTILINE)
        anchors = {
            re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings
        }
        assert not anchor or anchor in anchors, f"{target}#{anchor}"
