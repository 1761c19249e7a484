"""Output of Kafka's `DumpLogSegments` as values.

The dumps come in four shapes, because the tool changed over the years:

| shape      | written by      | one line is | what it leaves out                              |
|------------|-----------------|-------------|-------------------------------------------------|
| `v07`      | 0.7.2           | an entry    | CRC; inner messages of a wrapper                |
| `messages` | 0.8.2 to 0.10.2 | a message   | the wrapper: its codec, CRC, size and timestamp |
| `entries`  | 2.8.2           | a batch     | nothing (delete horizons came later)            |
| `batches`  | 4.3             | a batch     | nothing; magic 0 and 1 give the shape `entries` |

A field that a shape leaves out is None. In the `messages` shape the lines of one wrapper have its
position in common, so positions, offsets and counts are exact and `size` follows from the next
position (or the end of the file); whether an entry is a wrapper follows from its size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}

DumpShape = Literal["v07", "messages", "entries", "batches"]


class DumpRecord(NamedTuple):
    """One record line of a dump. Sizes are -1 for null, as Kafka prints them."""

    offset: int
    timestamp_type: int | None
    timestamp: int | None
    key_size: int | None
    value_size: int | None
    sequence: int | None
    crc: int | None
    """CRC of the message itself: magic 0 and 1 only."""


@dataclass(frozen=True, slots=True)
class DumpBatch:
    """One batch (or message, or wrapper) of a file as Kafka's tool describes it."""

    position: int
    """Byte position in the file (0.7: that is the offset less the file's first offset)."""
    size: int
    """Bytes in the file, size fields included."""
    magic: int
    base_offset: int
    """Of the first record; of an entry whose records are not shown, the same as `last_offset`."""
    last_offset: int
    count: int | None
    """Records; None where the tool shows neither a count nor the records."""
    is_wrapper: bool
    """Magic 0 and 1: the entry is a compressed message. Always false for magic 2."""
    codec: str | None
    """none, gzip, snappy, lz4 or zstd."""
    crc: int | None
    is_valid: bool
    timestamp_type: int | None
    timestamp: int | None
    """Magic 2: max timestamp. Magic 0 and 1: the entry's own."""
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    last_sequence: int | None
    leader_epoch: int | None
    is_transactional: bool | None
    is_control: bool | None
    delete_horizon_ms: int | None
    """None also when there is none: see `shape` of the dump for what can be known."""
    records: tuple[DumpRecord, ...]


@dataclass(frozen=True, slots=True)
class DumpFile:
    """The part of a `dump-log.txt` about one segment file."""

    name: str
    """As the tool prints it, relative to the root: `orders-0/00000000000000000000.log`."""
    path: Path
    shape: DumpShape
    start_offset: int
    batches: tuple[DumpBatch, ...]
    complete: bool
    """The batches cover the whole file. False only in damaged sets."""


# Keys and values are printed raw, so a line may be anything. What is taken for a batch line matches
# from the first to the last character (where nothing free follows) and must begin where the batch
# before it ended; `_in_place` refuses everything else.

_INT = r"(-?\d+)"
_TIME = r"(NoTimestampType|CreateTime|LogAppendTime): (-?\d+)"

_FILE = re.compile(rb"Dumping (\S+\.(?:log|kafka))")
_START = re.compile(rb"(?:Log s|S)tarting offset: (\d+)")
_BATCH = re.compile(
    rf"baseOffset: {_INT} lastOffset: {_INT} count: {_INT} baseSequence: {_INT} "
    rf"lastSequence: {_INT} producerId: {_INT} producerEpoch: {_INT} partitionLeaderEpoch: {_INT} "
    r"isTransactional: (true|false) isControl: (true|false) "
    r"(?:deleteHorizonMs: OptionalLong(?:\.empty|\[(-?\d+)\]) )?"
    rf"position: {_INT} {_TIME} size: {_INT} magic: {_INT} compresscodec: (\w+) crc: {_INT} "
    r"isvalid: (true|false)".encode()
)
_ENTRY = re.compile(
    rf"offset: {_INT} position: {_INT} {_TIME} size: {_INT} magic: {_INT} "
    rf"compresscodec: (\w+) crc: {_INT} isvalid: (true|false)".encode()
)
_MESSAGE = re.compile(
    rf"offset: {_INT} position: {_INT} (?:{_TIME} )?isvalid: (true|false) payloadsize: {_INT} "
    rf"magic: {_INT} compresscodec: (\w+) crc: {_INT}(?: keysize: {_INT})?(?= |$)".encode()
)
_V07 = re.compile(
    rf"offset: {_INT} isvalid: (true|false) payloadsize: {_INT} magic: {_INT} "
    r"compresscodec: (\w+)".encode()
)
_RECORD = re.compile(
    rf"\| offset: {_INT} {_TIME} keySize: {_INT} valueSize: {_INT} "
    rf"(?:sequence: {_INT} headerKeys: \[|isValid: (?:true|false) crc: {_INT})".encode()
)
_RECORD_2_8 = re.compile(
    rf"\| offset: {_INT} isValid: (?:true|false) crc: (\d+|null) keySize: {_INT} "
    rf"valueSize: {_INT} {_TIME} baseOffset: {_INT} lastOffset: {_INT} baseSequence: {_INT} "
    rf"lastSequence: {_INT} producerEpoch: {_INT} partitionLeaderEpoch: {_INT} batchSize: {_INT} "
    rf"magic: {_INT} compressType: \w+ position: {_INT} (?:sequence: {_INT} )?".encode()
)


def parse_dump(text: bytes, root: Path) -> dict[str, DumpFile]:
    """The files of one run of the tool, which was given their names relative to `root`."""
    parser = _DumpParser(root)
    for line in text.split(b"\n"):
        parser.feed(line)
    return parser.finish()


class _DumpParser:
    """Takes the lines of one dump in order; a batch is a dict until its last record is known."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[str, DumpFile] = {}
        self.name = ""
        self.shape: DumpShape = "batches"
        self.start_offset = -1
        self.batches: list[dict[str, Any]] = []

    def feed(self, line: bytes) -> None:
        if (found := _FILE.fullmatch(line)) and (self.root / found[1].decode()).is_file():
            self._end_file()
            self.name = found[1].decode()
        elif self.start_offset < 0 and (found := _START.fullmatch(line)):
            self.start_offset = int(found[1])
        elif found := _BATCH.fullmatch(line):
            self._batch(found)
        elif found := _ENTRY.fullmatch(line):
            self._entry(found)
        elif found := _RECORD.match(line):
            self._record(found)
        elif found := _RECORD_2_8.match(line):
            self._record_2_8(found)
        elif found := _V07.fullmatch(line):
            self._v07(found)
        elif found := _MESSAGE.match(line):
            self._message(found)

    def finish(self) -> dict[str, DumpFile]:
        self._end_file()
        return self.files

    def _in_place(self, position: int) -> bool:
        if not self.batches:
            return position == 0
        last = self.batches[-1]
        return bool(position == last["position"] + last["size"])

    def _batch(self, found: re.Match[bytes]) -> None:
        names = (
            "base_offset last_offset count base_sequence last_sequence producer_id producer_epoch "
            "leader_epoch is_transactional is_control delete_horizon_ms position timestamp_type "
            "timestamp size magic codec crc is_valid"
        )
        batch = dict(zip(names.split(), map(_value, found.groups()), strict=True))
        if self._in_place(batch["position"]):
            self.shape = "batches" if b"deleteHorizonMs" in found[0] else "entries"
            self.batches.append({**batch, "is_wrapper": False, "records": []})

    def _entry(self, found: re.Match[bytes]) -> None:
        names = "last_offset position timestamp_type timestamp size magic codec crc is_valid"
        entry = dict(zip(names.split(), map(_value, found.groups()), strict=True))
        if self._in_place(entry["position"]):
            self.shape = "entries"
            entry["is_wrapper"] = entry["codec"] != "none"
            self.batches.append({**entry, "records": []})

    def _record(self, found: re.Match[bytes]) -> None:
        self._add_record(DumpRecord(*map(_value, found.groups())))

    def _record_2_8(self, found: re.Match[bytes]) -> None:
        groups: list[Any] = [_value(group) for group in found.groups()]
        offset, crc, key_size, value_size, kind, time = groups[:6]
        position, sequence = groups[-2:]
        if self.batches and self.batches[-1]["position"] == position:
            crc = None if crc == "null" else crc
            self._add_record(
                DumpRecord(offset, kind, time, key_size, value_size, sequence, crc),
                base_offset=groups[6],
            )

    def _add_record(self, record: DumpRecord, base_offset: int | None = None) -> None:
        last = self.batches[-1]
        records: list[DumpRecord] = last["records"]
        after = records[-1].offset if records else -1
        if after < record.offset <= last["last_offset"]:
            records.append(record)
            if base_offset is not None:
                last["base_offset"] = base_offset

    def _message(self, found: re.Match[bytes]) -> None:
        values: list[Any] = [_value(group) for group in found.groups()]
        offset, position, kind, time, valid, size, magic, codec, crc, key_size = values
        record = DumpRecord(
            offset, kind, time, -1 if key_size is None else key_size, size, None, crc
        )
        last = self.batches[-1] if self.batches else None
        if last is not None and last["position"] == position:
            last["records"].append(record)
            last["last_offset"] = offset
            last["is_valid"] = last["is_valid"] and valid
            return
        if position != 0 if last is None else position <= last["position"]:
            return
        self.shape = "messages"
        self.batches.append(
            {
                "position": position,
                "magic": magic,
                "base_offset": offset,
                "last_offset": offset,
                "is_valid": valid,
                "codec": codec,
                "records": [record],
            }
        )

    def _v07(self, found: re.Match[bytes]) -> None:
        offset, valid, payload_size, magic, codec = map(_value, found.groups())
        position = offset - self.start_offset
        if not self._in_place(position):
            return
        self.shape = "v07"
        self.batches.append(
            {
                "position": position,
                "size": 4 + (6 if magic == 1 else 5) + payload_size,
                "magic": magic,
                "base_offset": offset,
                "last_offset": offset,
                "is_wrapper": codec != "none",
                "codec": codec,
                "is_valid": valid,
                "count": 1 if codec == "none" else None,
                "records": [],
            }
        )

    def _end_file(self) -> None:
        if not self.name:
            return
        path = self.root / self.name
        file_size = path.stat().st_size
        if self.shape == "messages":
            _infer_wrappers(self.batches, file_size)
        batches = tuple(_dump_batch(batch) for batch in self.batches)
        end = batches[-1].position + batches[-1].size if batches else 0
        self.files[self.name] = DumpFile(
            self.name, path, self.shape, self.start_offset, batches, end == file_size
        )
        self.name, self.start_offset, self.batches = "", -1, []


def _infer_wrappers(batches: list[dict[str, Any]], file_size: int) -> None:
    """Sizes from the positions; an entry that has not the size of its message is a wrapper."""
    ends = [batch["position"] for batch in batches[1:]] + [file_size]
    for batch, end in zip(batches, ends, strict=True):
        batch["size"] = end - batch["position"]
        first: DumpRecord = batch["records"][0]
        assert first.key_size is not None
        assert first.value_size is not None
        overhead = 12 + 6 + (8 if batch["magic"] == 1 else 0) + 8
        plain = overhead + max(first.key_size, 0) + max(first.value_size, 0)
        batch["is_wrapper"] = len(batch["records"]) > 1 or plain != batch["size"]
        if batch["is_wrapper"]:
            batch["codec"] = None
        else:
            batch["crc"] = first.crc
            batch["timestamp_type"], batch["timestamp"] = first.timestamp_type, first.timestamp


def _dump_batch(fields: dict[str, Any]) -> DumpBatch:
    records: tuple[DumpRecord, ...] = tuple(fields.pop("records"))
    fields.setdefault("base_offset", records[0].offset if records else fields["last_offset"])
    fields.setdefault("count", len(records))
    unknown: dict[str, Any] = dict.fromkeys(DumpBatch.__dataclass_fields__)
    return DumpBatch(**(unknown | fields | {"records": records}))


def _value(group: bytes | None) -> Any:
    if group is None:
        return None
    text = group.decode()
    if text in ("true", "false"):
        return text == "true"
    if text in TIMESTAMP_TYPES:
        return TIMESTAMP_TYPES[text]
    if text.lstrip("-").isdigit():
        return int(text)
    codec = text.lower().removesuffix("compressioncodec")
    return "none" if codec == "no" else codec
