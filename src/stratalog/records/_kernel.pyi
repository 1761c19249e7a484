"""Types of the compiled kernel. What each function does: _reference.py, the same names."""

from array import array
from typing import Any, Final, TypeAlias

_Buffer: TypeAlias = (
    Any  # anything with the buffer protocol; collections.abc.Buffer is Python 3.12's
)

NAME: Final[str]
HARDWARE_CRC: bool

def use_hardware_crc(allowed: bool) -> bool: ...
def crc32c(data: _Buffer, value: int = 0) -> int: ...
def crc32(data: _Buffer, value: int = 0) -> int: ...
def walk(
    data: _Buffer,
    position: int,
    limit: int,
    rows: memoryview,
    flags: int = 0,
    expected: int = -1,
    size_max: int = ...,
    *,
    guarded: bool = False,
) -> tuple[int, int, int, int, int]: ...
def count(
    data: _Buffer,
    position: int,
    limit: int,
    flags: int = 0,
    expected: int = -1,
    size_max: int = ...,
    *,
    guarded: bool = False,
) -> tuple[int, int, int, int, int, int, int]: ...
def copy(data: _Buffer, position: int, limit: int, *, guarded: bool = False) -> bytes: ...
def walk_v07(
    data: _Buffer,
    position: int,
    limit: int,
    rows: memoryview,
    flags: int = 0,
    base_offset: int = 0,
) -> tuple[int, int, int, int, int]: ...

class Columns:
    expected: int
    below: int
    @property
    def skipped(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def used(self) -> int: ...
    @property
    def tombstones(self) -> int: ...
    def __init__(
        self,
        want: int,
        flags: int = 0,
        *,
        views: bool = False,
        rows_max: int = 65536,
        bytes_max: int = ...,
        bounds: tuple[int, int, int, int] | None = None,
        aborted: array[int] | None = None,
        keep: memoryview | None = None,
        tombstones: bool = True,
    ) -> None: ...
    def fill(
        self,
        data: _Buffer,
        position: int,
        limit: int,
        *,
        size_max: int = ...,
        position_base: int = 0,
        buffer_index: int = 0,
        guarded: bool = False,
    ) -> tuple[int, int, int]: ...
    def add(
        self,
        data: _Buffer,
        position: int,
        limit: int,
        payload: _Buffer,
        *,
        position_base: int = 0,
        buffer_index: int = 0,
    ) -> tuple[int, int, int]: ...
    def fill_v07(
        self,
        data: _Buffer,
        position: int,
        limit: int,
        *,
        base_offset: int = 0,
        buffer_index: int = 0,
    ) -> tuple[int, int, int]: ...
    def add_v07(
        self,
        data: _Buffer,
        position: int,
        limit: int,
        payload: _Buffer,
        *,
        base_offset: int = 0,
        buffer_index: int = 0,
    ) -> tuple[int, int, int]: ...
    def take(self) -> tuple[int, dict[int, Any]]: ...

class Rows:
    @property
    def count(self) -> int: ...
    @property
    def has_offsets(self) -> bool: ...
    @property
    def has_headers(self) -> bool: ...
    def __init__(
        self,
        count: int,
        *,
        timestamps: tuple[_Buffer | None, _Buffer, int] | None = None,
        multiply: int = 1,
        divide: int = 1,
        default_timestamp: int = -1,
        offsets: tuple[_Buffer, int] | None = None,
        key: tuple[_Buffer | None, _Buffer, _Buffer, int] | None = None,
        value: tuple[_Buffer | None, _Buffer, _Buffer, int] | None = None,
        headers: tuple[_Buffer | None, _Buffer, int, Any, Any] | None = None,
        order: _Buffer | None = None,
    ) -> None: ...

def encode_records(
    out: bytearray,
    rows: Rows,
    row: int,
    row_end: int,
    size_target: int,
    base_timestamp: int | None = None,
) -> tuple[int, int, int, int, int, int]: ...
def murmur2(data: _Buffer) -> int: ...
def hash_keys(rows: Rows, partitions: int, out: memoryview) -> int: ...
def siphash(seed: _Buffer, data: _Buffer) -> tuple[int, int]: ...
def sort_offsets(offsets: memoryview) -> None: ...

class LatestKeys:
    @property
    def count(self) -> int: ...
    @property
    def count_max(self) -> int: ...
    @property
    def keyless(self) -> int: ...
    def __init__(self, seed: _Buffer, memory: int) -> None: ...
    def note(self, rows: Rows, row: int = 0) -> tuple[int, int]: ...
    def load(self, entries: _Buffer, entry: int = 0) -> int: ...
    def spill(self, level: int) -> tuple[_Buffer, list[int]]: ...
    def take_offsets(self) -> _Buffer: ...

def write_batch_header(
    out: bytearray,
    at: int,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None: ...
def encode_messages(
    out: bytearray,
    rows: Rows,
    row: int,
    row_end: int,
    size_target: int,
    magic: int,
    attributes: int,
    base_offset: int,
    relative: bool,
    append_time: int | None = None,
) -> tuple[int, int, int, int, int]: ...
def restamp(
    data: bytearray | memoryview, position: int, limit: int, next_offset: int, leader_epoch: int
) -> tuple[int, int, int, int]: ...
def check_records(
    data: _Buffer, start: int, end: int, count: int, base_timestamp: int
) -> tuple[int, int, int, int, int, int, int]: ...
def find_batch(
    data: _Buffer, start: int, limit: int, target: int, by_time: bool
) -> tuple[int, int, int, int, int, int]: ...
def find_timed(
    data: _Buffer,
    room: int,
    timestamp: int,
    start_offset: int,
    end_offset: int,
    entry_timestamp: int,
    entry_offset: int,
) -> tuple[int, int, int, int]: ...
def admit_plain(
    data: _Buffer, size_max: int, now: int, before_max: int, after_max: int, needs_key: bool
) -> tuple[bytearray | memoryview, array[int]] | None: ...
def place_plain(
    data: bytearray | memoryview,
    row: _Buffer,
    state: _Buffer,
    position: int,
    segment_bytes: int,
    first_timestamp: int,
    span_ms: int,
    next_offset: int,
    leader_epoch: int,
) -> int: ...
def find_timestamp(
    data: _Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    target: int,
    delta_min: int,
) -> tuple[int, int]: ...
def search_entries(
    data: _Buffer,
    count: int,
    entry_size: int,
    key_at: int,
    key_size: int,
    target: int,
    *,
    guarded: bool = False,
) -> int: ...
def find_places(
    offset_entries: _Buffer, base_offset: int, offset: int, *, guarded: bool = False
) -> tuple[int, int]: ...
def find_time_entry(
    time_entries: _Buffer,
    offset_entries: _Buffer,
    base_offset: int,
    timestamp: int,
    *,
    guarded: bool = False,
) -> tuple[int, int, int, int] | None: ...
def note_batches(
    rows: _Buffer, count: int, state: _Buffer, offset_out: bytearray, time_out: bytearray
) -> tuple[int, int]: ...
def match_entries(
    rows: _Buffer,
    at: int,
    count: int,
    state: _Buffer,
    offset_entries: _Buffer,
    time_entries: _Buffer,
) -> tuple[int, int]: ...
def replay_rows(rows: _Buffer, count: int, keep: _Buffer) -> int: ...
def find_intact(
    data: _Buffer,
    position: int,
    limit: int,
    rest: int,
    first_offset: int,
    last_offset: int,
    size_max: int = ...,
    checked_max: int = ...,
    *,
    guarded: bool = False,
) -> tuple[int, int, int, int]: ...
def find_intact_v07(
    data: _Buffer,
    position: int,
    limit: int,
    rest: int,
    size_max: int = ...,
    checked_max: int = ...,
) -> tuple[int, int, int, int]: ...
def zero_run(data: _Buffer, start: int, end: int, *, guarded: bool = False) -> int: ...

class OffsetMap:
    latest_offset: int
    @property
    def records(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def keys_max(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None: ...
    def __len__(self) -> int: ...
    def put(self, key: _Buffer, offset: int) -> bool: ...
    def put_digest(self, digest: _Buffer, offset: int) -> bool: ...
    def get(self, key: _Buffer) -> int: ...
    def note(
        self,
        data: _Buffer,
        position: int,
        limit: int,
        *,
        first_offset: int = 0,
        flags: int = 0,
        expected: int = -1,
        below: int = -1,
        size_max: int = ...,
        aborted: _Buffer | None = None,
        guarded: bool = False,
    ) -> tuple[int, int, int, int]: ...
    def note_batch(
        self,
        data: _Buffer,
        position: int,
        limit: int,
        payload: _Buffer,
        *,
        first_offset: int = 0,
        flags: int = 0,
        expected: int = -1,
    ) -> tuple[int, int, int, int]: ...

class KeyDigests:
    def __init__(self, rows_max: int = ...) -> None: ...
    def __len__(self) -> int: ...
    def note(
        self,
        data: _Buffer,
        position: int,
        limit: int,
        *,
        flags: int = 0,
        expected: int = -1,
        size_max: int = ...,
        aborted: _Buffer | None = None,
        guarded: bool = False,
    ) -> tuple[int, int, int, int]: ...
    def note_batch(
        self,
        data: _Buffer,
        position: int,
        limit: int,
        payload: _Buffer,
        *,
        flags: int = 0,
        expected: int = -1,
    ) -> tuple[int, int, int, int]: ...
    def take(self) -> tuple[_Buffer, _Buffer, _Buffer]: ...
    def take_events(self) -> list[tuple[int, int, bool]]: ...

class BatchFilter:
    @property
    def expected(self) -> int: ...
    @property
    def used(self) -> int: ...
    @property
    def counts(self) -> list[int]: ...
    def __init__(
        self,
        newest: OffsetMap | None = None,
        *,
        drop: _Buffer | None = None,
        erases: bool = False,
        latest_offset: int | None = None,
        now: int = 0,
        delete_retention: int = 0,
        flags: int = 0,
        size_max: int = ...,
        round_end: int | None = None,
        last_batches: _Buffer | None = None,
        bytes_max: int = ...,
    ) -> None: ...
    def begin_segment(
        self,
        expected: int,
        below: int | None = None,
        *,
        aborted: _Buffer | None = None,
        keeps_legacy_deletes: bool = True,
    ) -> None: ...
    def filter(
        self, data: _Buffer, position: int, limit: int, *, guarded: bool = False
    ) -> tuple[int, int, int]: ...
    def filter_batch(
        self,
        data: _Buffer,
        position: int,
        limit: int,
        payload: _Buffer,
        *,
        discards: bool = False,
        keeps_header: bool = False,
        is_marker_of_none: bool = False,
    ) -> tuple[int, int, int, bytes | None, tuple[int, int, int, int, int, int] | None]: ...
    def put(self, data: _Buffer) -> None: ...
    def take(self) -> _Buffer: ...
    def take_events(self) -> list[tuple[int, bool]]: ...
