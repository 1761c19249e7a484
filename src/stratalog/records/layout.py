"""Where every field of Kafka's record formats lies. The grammar is in docs/formats/.

Names ending in ``_AT`` are byte positions inside a header; nothing else in the project spells one.
``_layout.pxd`` holds the same numbers for the kernel, and a test compares the two.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

# Every entry of 0.8 and later starts alike: offset, size, four bytes, magic.
OFFSET_AT: Final = 0
SIZE_AT: Final = 8
LOG_OVERHEAD: Final = 12  # the size field counts the bytes after itself
MAGIC_AT: Final = 16
PREFIX_SIZE: Final = 17  # the least that tells which format an entry has

# Magic 0 and 1: one message (or one wrapper around a compressed message set).
MESSAGE_CRC_AT: Final = 12
MESSAGE_CRC_FROM: Final = 16  # the CRC-32 covers magic to the end
MESSAGE_ATTRIBUTES_AT: Final = 17
MESSAGE_TIMESTAMP_AT: Final = 18  # magic 1 only
MESSAGE_KEY_AT_V0: Final = 18
MESSAGE_KEY_AT_V1: Final = 26
MESSAGE_SIZE_MIN_V0: Final = 14  # crc, magic, attributes, two lengths
MESSAGE_SIZE_MIN_V1: Final = 22

# Magic 2: the record batch.
LEADER_EPOCH_AT: Final = 12
CRC_AT: Final = 17
CRC_FROM: Final = 21  # the CRC-32C covers attributes to the end
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
RECORD_COUNT_AT: Final = 57
BATCH_HEADER_SIZE: Final = 61
BATCH_LENGTH_MIN: Final = BATCH_HEADER_SIZE - LOG_OVERHEAD
RECORD_SIZE_MIN: Final = 7  # length, attributes, two deltas, two lengths, header count: a byte each

# 0.7: length, magic, [attributes,] crc, payload; the offset is the byte position.
V07_LENGTH_SIZE: Final = 4
V07_MAGIC_AT: Final = 4
V07_CRC_AT_V0: Final = 5
V07_ATTRIBUTES_AT: Final = 5
V07_CRC_AT_V1: Final = 6
V07_LENGTH_MIN_V0: Final = 5
V07_LENGTH_MIN_V1: Final = 6
V07_CODEC_MASK: Final = 0x03  # all that 0.7's attributes say

# Attributes.
CODEC_MASK: Final = 0x07
APPEND_TIME_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)


class Magic(IntEnum):
    """The format of one entry, as its magic byte says."""

    V0 = 0
    V1 = 1
    V2 = 2


class Codec(IntEnum):
    """Compression codecs by the number that the attributes carry."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def text(self) -> str:
        """The codec's name in options, configs and output: ``gzip``."""
        return self.name.lower()


#: The codecs by their names, in the order of their numbers.
CODECS: Final = {codec.text: codec for codec in Codec}


#: How large a batch may be for a reader that is not given another limit. Kafka has none but 2 GiB.
BATCH_SIZE_MAX_DEFAULT: Final = 256 << 20


class TimestampType(IntEnum):
    """Where a record's timestamp comes from. Magic 0 has none."""

    NONE = -1
    CREATE_TIME = 0
    APPEND_TIME = 1


class Ending(IntEnum):
    """How a walk over a region came to its end, or why it paused.

    END, INCOMPLETE and CORRUPT are what the bytes say. FULL, COMPRESSED and CONTROL are how the kernel hands
    control back: the output is full, or the batch at this position must be decompressed first, or is a
    control batch that the caller decides on. LOST: a mapped file cannot be read any more from this position
    on; what lies before it was read.
    """

    END = 0
    INCOMPLETE = 1
    CORRUPT = 2
    FULL = 3
    COMPRESSED = 4
    LOST = 5
    CONTROL = 6


class Reason(IntEnum):
    """Why an entry is CORRUPT or INCOMPLETE. The names are stable: programs may compare them."""

    NONE = 0
    SHORT_TAIL = 1
    ZERO_TAIL = 2
    SIZE_TOO_SMALL = 3
    SIZE_TOO_LARGE = 4
    UNKNOWN_MAGIC = 5
    CRC_MISMATCH = 6
    OFFSET_RANGE = 7
    LEADER_EPOCH_RANGE = 8
    OFFSET_ORDER = 9
    OFFSET_GAP = 10
    UNKNOWN_CODEC = 11
    LAST_OFFSET_DELTA_RANGE = 12
    RECORD_COUNT_RANGE = 13
    RECORD_LENGTH = 14
    VARINT = 15
    FIELD_LENGTH = 16
    RECORD_TRAILING_BYTES = 17
    BATCH_TRAILING_BYTES = 18
    OFFSET_DELTA_RANGE = 19
    HEADER_COUNT = 20
    HEADER_KEY_NULL = 21
    COMPRESSED_DATA = 22
    DECOMPRESSED_TOO_LARGE = 23
    NESTED_COMPRESSION = 24
    EMPTY_WRAPPER = 25
    WRAPPER_OFFSET = 26


class Check(IntFlag):
    """What a walk looks at beyond each header's own plausibility."""

    NONE = 0
    CRC = 1
    ORDER = 2  # every batch lies above the one before it
    CONTIGUOUS = 4  # every batch starts where the one before it ended (not so after compaction)
    COUNTS = 8  # the records of an uncompressed batch are as many, and end where, the header says
    INCLUDE_CONTROL = 16  # not a check: decode control batches too
    RECORDS = 32  # the records of an uncompressed batch decode; count() leaves compressed ones to the caller


class Column(IntFlag):
    """The columns that the kernel can build, as bits."""

    OFFSET = 1
    TIMESTAMP = 2  # microseconds, for Arrow and Spark; null where they do not fit 64 bits
    TIMESTAMP_TYPE = 4
    KEY = 8
    VALUE = 16
    HEADERS = 32
    POSITION = 64
    BASE_OFFSET = 128
    PRODUCER_ID = 256
    PRODUCER_EPOCH = 512
    SEQUENCE = 1024
    LEADER_EPOCH = 2048
    CODEC = 4096
    IS_CONTROL = 8192
    IS_TRANSACTIONAL = 16384
    TIMESTAMP_MS = 32768  # milliseconds as they are stored


class Row(IntEnum):
    """The fields of a header row: what a walk tells of one batch, as 64-bit integers."""

    POSITION = 0
    SIZE = 1
    MAGIC = 2
    ATTRIBUTES = 3
    BASE_OFFSET = 4  # -1 for a wrapper: only its contents tell
    LAST_OFFSET = 5
    BASE_TIMESTAMP = 6
    MAX_TIMESTAMP = 7
    RECORD_COUNT = 8  # -1 for a wrapper
    PRODUCER_ID = 9
    PRODUCER_EPOCH = 10
    BASE_SEQUENCE = 11
    LEADER_EPOCH = 12
    CRC = 13
    PAYLOAD_POSITION = 14
    PAYLOAD_SIZE = 15


ROW_WIDTH: Final = len(Row)


class IndexState(IntEnum):
    """What an open segment remembers between two batches, as 64-bit integers: see note_batches()."""

    BASE_OFFSET = 0  # of the segment: indexes store offsets relative to it
    INTERVAL = 1  # index.interval.bytes
    BYTES_SINCE = 2  # bytes of log since the last index entry
    MAX_TIMESTAMP = 3  # the largest so far, -1 before the first …
    MAX_TIMESTAMP_OFFSET = 4  # … and the last offset of the earliest batch that has it
    LAST_TIME = 5  # the last entry of the time index: -1, and the base offset, where there is none
    LAST_TIME_OFFSET = 6
    LAST_OFFSET = 7  # the last entry of the offset index: below the base offset where there is none
    OFFSET_SLOTS = 8  # entries that the offset index has room for
    TIME_SLOTS = 9  # and the time index, without the one that is kept for its final entry
    POSITION_BASE = 10  # where the region that was walked starts in the file


INDEX_STATE_WIDTH: Final = len(IndexState)


class MatchState(IntEnum):
    """What is known while index entries are held against batches, as 64-bit integers: see match_entries()."""

    POSITION_BASE = 0  # where the region that was walked starts in the file
    BASE_OFFSET = 1  # of the segment
    OFFSET_SLOT = 2  # the next entry of the offset index
    TIME_SLOT = 3  # and of the time index
    ENTRY_OFFSET = 4  # of the last offset entry that was met, -1 before the first
    LAST_OFFSET = (
        5  # of the last batch; before the first, that of the segment before, or -2: not known
    )
    LEADER_EPOCH = 6  # of the last batch that has one
    MAX_TIMESTAMP = 7  # the largest so far, -1 before the first
    HAS_UNTIMED = 8  # whether there was a message of magic 0, which has no time
    HAS_HORIZON = 9  # whether there was a batch with a delete horizon
    WIDEST = 10  # how many offsets the widest batch spans


MATCH_STATE_WIDTH: Final = len(MatchState)


class MatchStop(IntEnum):
    """Why match_entries() came back."""

    DONE = 0
    OFFSET_ENTRY = 1
    TIME_ENTRY = 2
    LEADER_EPOCH = 3
    CONTROL = 4


class FilterCount(IntEnum):
    """What a BatchFilter counts."""

    BATCHES = 0  # that were read
    RECORDS = 1  # that were read, control records among them
    KEPT = 2
    SUPERSEDED = 3  # removed: there is a newer record with the same key
    EXPIRED = 4  # removed: tombstones whose time has come
    NULL_KEYS = 5  # removed: without a key, compaction cannot tell
    ABORTED = 6  # removed: of aborted transactions
    ERASED = 7  # removed: by key or offset
    MARKERS = 8  # removed: of transactions without records
    COPIED = 9  # batches that stayed as they were
    REBUILT = 10  # batches that lost records, or got a delete horizon
    EMPTIED = 11  # batches of which only the header is left
    REMOVED = 12  # batches of which nothing is left


FILTER_COUNTS: Final = len(FilterCount)

#: Keys that are hashed and looked up together.
KEYS_AT_ONCE: Final = 64
#: Transactional batches that a BatchFilter remembers for its caller.
FILTER_EVENTS_MAX: Final = 512

# The entries of the offset index: int32 relative offset, int32 position; and of the time index: int64
# timestamp, int32 relative offset.
OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12

# replay_rows(): a producer remembers five batches, and a call so many producers.
REMEMBERED_BATCHES: Final = 5
REPLAY_PRODUCERS_MAX: Final = 1024

assert LOG_OVERHEAD == SIZE_AT + 4
assert PREFIX_SIZE == MAGIC_AT + 1
assert MESSAGE_SIZE_MIN_V0 == MESSAGE_KEY_AT_V0 + 8 - LOG_OVERHEAD
assert MESSAGE_SIZE_MIN_V1 == MESSAGE_KEY_AT_V1 + 8 - LOG_OVERHEAD
assert CRC_FROM == CRC_AT + 4 == ATTRIBUTES_AT
assert BATCH_HEADER_SIZE == RECORD_COUNT_AT + 4
