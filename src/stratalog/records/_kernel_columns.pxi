# The decoder that Python drives: fill() until it pauses, add() for what had to be decompressed,
# take() for the columns.

cdef enum:
    SINK_BLOCKS = 27


cdef void sink_blocks(Sink* s, Block** blocks) noexcept:
    cdef Variable* v
    cdef int i
    for i in range(4):
        v = (&s.key if i == 0 else &s.value if i == 1 else &s.header_key if i == 2
             else &s.header_value)
        blocks[3 * i] = &v.offsets
        blocks[3 * i + 1] = &v.data
        blocks[3 * i + 2] = &v.valid
    blocks[12] = &s.offset
    blocks[13] = &s.timestamp
    blocks[14] = &s.timestamp_valid
    blocks[15] = &s.timestamp_ms
    blocks[16] = &s.timestamp_type
    blocks[17] = &s.header_ends
    blocks[18] = &s.position
    blocks[19] = &s.base_offset
    blocks[20] = &s.producer_id
    blocks[21] = &s.producer_epoch
    blocks[22] = &s.sequence
    blocks[23] = &s.leader_epoch
    blocks[24] = &s.codec
    blocks[25] = &s.is_control
    blocks[26] = &s.is_transactional


cdef void expect_sizes(Sink* s, size_t rows, size_t used) noexcept:
    """Full-grown sizes for the blocks that every record goes into, with warm memory where there is
    some. What is rare (validity, batch-level columns) grows when it comes."""
    s.offset = POOL.get(rows * 8)
    s.timestamp = POOL.get(rows * 8)
    s.timestamp_type = POOL.get(rows * 4)
    s.header_ends = POOL.get((rows + 1) * 4)
    s.key.offsets = POOL.get(rows * 16 if s.views else (rows + 1) * 4)
    s.value.offsets = POOL.get(rows * 16 if s.views else (rows + 1) * 4)
    if not s.views:
        s.key.data = POOL.get(used // 2)
        s.value.data = POOL.get(used + used // 4)


cdef enum:
    ABORTED_WIDTH = 3

cdef int64_t NOTHING_KEPT = -1  # where there is no offset to keep, this is pointed at and not read


cdef struct Decoding:
    Sink sink
    Bounds bounds
    const int64_t* aborted  # producer id, first offset, offset of the marker; in this order …
    int64_t aborted_count  # … and so many of them
    int flags
    int64_t rows_max
    int64_t bytes_max
    int64_t expected
    int64_t below
    int64_t skipped


cdef bint in_aborted(const int64_t* aborted, int64_t count, const Header* h) noexcept nogil:
    """Whether a batch belongs to one of ``count`` transactions that are left out."""
    cdef int64_t low = -1
    cdef int64_t high = count - 1
    cdef int64_t middle
    cdef const int64_t* txn
    if count == 0 or h.magic != 2 or h.attributes & TRANSACTIONAL_MASK == 0 or is_control(h):
        return False
    while low < high:
        middle = low + (high - low + 1) // 2
        txn = aborted + middle * ABORTED_WIDTH
        if txn[0] < h.producer_id or (txn[0] == h.producer_id and txn[1] <= h.last_offset):
            low = middle
        else:
            high = middle - 1
    if low < 0:
        return False
    txn = aborted + low * ABORTED_WIDTH
    return txn[0] == h.producer_id and h.last_offset < txn[2]


cdef inline bint needs_crc_to_skip(const Decoding* d, const Header* h) noexcept nogil:
    # No CRC covers the size of a batch: a wrong one hides what follows, or makes a batch of what is none.
    # A wrong magic byte makes one message of many records. Each would leave out offsets that are wanted.
    if h.magic < 2 or h.last_offset < d.bounds.first:
        return True
    return d.expected <= d.bounds.last and d.bounds.last < h.base_offset


cdef inline bint holds_nothing_to_keep(Decoding* d, const Header* h) noexcept nogil:
    """Whether the header alone tells that no record of this batch is among those to keep."""
    cdef Bounds* bounds = &d.bounds
    cdef bint is_wrapper = h.count < 0  # what that holds, only its contents tell
    if bounds.keep == NULL:
        return False
    bounds.keep_at = seek_keep(bounds, bounds.keep_at, d.expected if is_wrapper else h.base_offset)
    return not is_wrapper and (
        bounds.keep_at == bounds.keep_count or bounds.keep[bounds.keep_at] > h.last_offset)


cdef struct Fill:
    Decoding* d
    Cursor base
    Cursor p
    Cursor end
    int64_t size_max
    int64_t position_base
    int ending
    int reason


cdef void fill_columns(void* argument) noexcept nogil:
    cdef Fill* f = <Fill*>argument
    cdef Decoding* d = f.d
    cdef Sink* s = &d.sink
    cdef Header h
    cdef bint is_outside
    while True:
        f.ending = parse_header(f.p, f.end, f.size_max, &h, &f.reason)
        if f.ending != GOES_ON:
            return
        f.reason = check_place(&h, d.flags, d.expected)
        if f.reason != REASON_NONE:
            f.ending = ENDING_CORRUPT
            return
        if d.flags & CHECK_ORDER and 0 <= d.below <= h.last_offset:
            f.ending = ENDING_CORRUPT
            f.reason = REASON_OFFSET_ORDER
            return
        is_outside = outside(&d.bounds, &h)
        if is_outside or holds_nothing_to_keep(d, &h):
            if (d.flags & CHECK_CRC and (not is_outside or needs_crc_to_skip(d, &h))
                    and not crc_matches(&h)):
                f.ending = ENDING_CORRUPT
                f.reason = REASON_CRC_MISMATCH
                return
            d.skipped += 1
            d.expected = after(&h)
            f.p += h.size
            continue
        if s.rows and (s.rows + (h.count if h.count > 0 else 1) > d.rows_max
                       or used_bytes(s) + h.payload_size > d.bytes_max):
            f.ending = ENDING_FULL
            return
        if d.flags & CHECK_CRC and not crc_matches(&h):
            f.ending = ENDING_CORRUPT
            f.reason = REASON_CRC_MISMATCH
            return
        if is_control(&h) and not d.flags & INCLUDE_CONTROL:
            # Only now: a flipped bit must not hide records by calling them control records.
            d.expected = after(&h)
            f.p += h.size
            continue
        if in_aborted(d.aborted, d.aborted_count, &h):
            d.expected = after(&h)
            f.p += h.size
            continue
        if h.codec != CODEC_NONE and h.payload_size:
            f.ending = ENDING_COMPRESSED
            return
        f.reason = decode_entry(s, &h, h.payload, h.payload + h.payload_size, d.flags, d.expected,
                                f.position_base + (f.p - f.base), &d.bounds)
        if f.reason != REASON_NONE:
            f.ending = ENDING_CORRUPT
            return
        d.expected = after(&h)
        f.p += h.size


cdef class Columns:
    """Columns under construction, for the wanted bits of ``layout.Column``.

    ``bounds`` are the first and last offset and the first and last timestamp, all inclusive. With
    ``views`` keys and values become 16-byte views into the buffers they were decoded from, which
    the caller numbers. ``aborted`` are transactions that are left out, three integers each (producer
    id, first offset, offset of the marker), in order. ``keep`` are the offsets, in order, of the only
    records that are wanted, of these only ones with a value unless ``tombstones``.
    """

    cdef Decoding d
    cdef const int64_t[::1] aborted
    cdef const int64_t[::1] keep

    def __cinit__(self, int want, int flags=0, *, bint views=False, int64_t rows_max=65536,
                  int64_t bytes_max=8 << 20, bounds=None, aborted=None, keep=None,
                  bint tombstones=True):
        self.d.sink.want = want
        self.d.sink.views = views
        self.d.flags = flags
        self.d.rows_max = rows_max
        self.d.bytes_max = bytes_max
        self.d.expected = -1
        self.d.below = -1
        if bounds is None:
            bounds = (-INT64_MAX - 1, INT64_MAX, -INT64_MAX - 1, INT64_MAX)
        first, last, first_time, last_time = bounds
        self.d.bounds.first = first
        self.d.bounds.last = last
        self.d.bounds.first_time = first_time
        self.d.bounds.last_time = last_time
        if aborted is not None and len(aborted):
            self.aborted = aborted
            self.d.aborted = &self.aborted[0]
            self.d.aborted_count = self.aborted.shape[0] // ABORTED_WIDTH
        if keep is not None:
            self.keep = keep
            self.d.bounds.keep = &self.keep[0] if len(keep) else &NOTHING_KEPT
            self.d.bounds.keep_count = self.keep.shape[0]
            self.d.bounds.without_tombstones = not tombstones
        expect_sizes(&self.d.sink, min(max(rows_max, 1), 1 << 16), min(max(bytes_max, 1), 8 << 20))

    def __dealloc__(self):
        cdef Block* blocks[SINK_BLOCKS]
        sink_blocks(&self.d.sink, blocks)
        for i in range(SINK_BLOCKS):
            POOL.put(blocks[i][0])

    @property
    def rows(self):
        """How many rows stand in the columns."""
        return self.d.sink.rows

    @property
    def used(self):
        """How many bytes of keys, values and headers stand in the columns."""
        return used_bytes(&self.d.sink)

    @property
    def expected(self):
        """The offset that must come next, -1 for any."""
        return self.d.expected

    @expected.setter
    def expected(self, int64_t offset):
        self.d.expected = offset

    @property
    def below(self):
        """The offset that no batch may reach: where the next segment begins; -1: there is none."""
        return self.d.below

    @below.setter
    def below(self, int64_t offset):
        self.d.below = offset

    @property
    def skipped(self):
        """Batches that the bounds, or the offsets to keep, left out by their header."""
        return self.d.skipped

    @property
    def tombstones(self):
        """Records without a value that were among those to keep, and were left out."""
        return self.d.sink.tombstones

    def fill(self, const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit, *,
             int64_t size_max=0x7FFFFFFF, int64_t position_base=0, int buffer_index=0,
             bint guarded=False):
        """Decode batches from ``position`` on until something stops it.

        Answers (position reached, ending, reason). COMPRESSED: the batch at that position is sound
        as far as its header and CRC tell, and waits for add(). FULL: take() first.
        """
        cdef Fill f
        cdef Mark before = mark(&self.d.sink)
        cdef int64_t expected = self.d.expected
        cdef int64_t skipped = self.d.skipped
        f.d = &self.d
        f.base = region_start(data, position, limit)
        f.p = f.base + position
        f.end = f.base + limit
        f.size_max = size_max
        f.position_base = position_base
        self.aim(f.base, buffer_index, limit)
        try:
            with nogil:
                perform(fill_columns, &f, f.base, limit, guarded)
        except BufferError:
            rewind(&self.d.sink, &before)
            self.d.expected = expected
            self.d.skipped = skipped
            raise
        if f.reason == NO_MEMORY:
            raise MemoryError
        return f.p - f.base, f.ending, f.reason

    def add(self, const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit,
            const uint8_t[::1] payload not None, *, int64_t position_base=0, int buffer_index=0):
        """Decode the batch at ``position``, whose records or messages are ``payload``. Of a mapped file,
        give a copy() of the batch.

        Answers (position behind the batch, ending, reason) like fill(); END when all went well.
        """
        cdef Cursor base = region_start(data, position, limit)
        cdef Cursor inside = region_start(payload, 0, payload.shape[0])
        cdef Cursor inside_end = inside + payload.shape[0]
        cdef int ending, reason
        cdef Header h
        self.aim(inside, buffer_index, payload.shape[0])
        with nogil:
            ending = parse_header(base + position, base + limit, 0x7FFFFFFF, &h, &reason)
            if ending == GOES_ON:
                reason = decode_entry(&self.d.sink, &h, inside, inside_end, self.d.flags,
                                      self.d.expected, position_base + position, &self.d.bounds)
                ending = ENDING_END if reason == REASON_NONE else ENDING_CORRUPT
                if ending == ENDING_END:
                    self.d.expected = after(&h)
                    position += h.size
        if reason == NO_MEMORY:
            raise MemoryError
        return position, ending, reason

    def fill_v07(self, const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit, *,
                 int64_t base_offset=0, int buffer_index=0):
        """fill() for 0.7 files: the offset of an entry is ``base_offset`` plus its position."""
        cdef Cursor base = region_start(data, position, limit)
        cdef Cursor p = base + position
        cdef Cursor end = base + limit
        cdef Sink* s = &self.d.sink
        cdef int ending, reason
        cdef Header h
        self.aim(base, buffer_index, limit)
        with nogil:
            while True:
                ending = parse_entry_v07(p, end, wrapping_add(base_offset, p - base), &h, &reason)
                if ending != GOES_ON:
                    break
                if h.base_offset < self.d.bounds.first or h.base_offset > self.d.bounds.last:
                    self.d.skipped += 1
                    p += h.size
                    continue
                if s.rows and (s.rows + 1 > self.d.rows_max
                               or used_bytes(s) + h.payload_size > self.d.bytes_max):
                    ending = ENDING_FULL
                    break
                if self.d.flags & CHECK_CRC and not crc_matches_v07(&h):
                    ending = ENDING_CORRUPT
                    reason = REASON_CRC_MISMATCH
                    break
                if h.codec != CODEC_NONE:
                    ending = ENDING_COMPRESSED
                    break
                reason = decode_entry_v07(s, &h, NULL, NULL, self.d.flags, &self.d.bounds)
                if reason != REASON_NONE:
                    ending = ENDING_CORRUPT
                    break
                p += h.size
        if reason == NO_MEMORY:
            raise MemoryError
        return p - base, ending, reason

    def add_v07(self, const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit,
                const uint8_t[::1] payload not None, *, int64_t base_offset=0, int buffer_index=0):
        """add() for 0.7 files."""
        cdef Cursor base = region_start(data, position, limit)
        cdef Cursor inside = region_start(payload, 0, payload.shape[0])
        cdef Cursor inside_end = inside + payload.shape[0]
        cdef int ending, reason
        cdef Header h
        self.aim(inside, buffer_index, payload.shape[0])
        with nogil:
            ending = parse_entry_v07(base + position, base + limit,
                                     wrapping_add(base_offset, position), &h, &reason)
            if ending == GOES_ON:
                reason = decode_entry_v07(&self.d.sink, &h, inside, inside_end, self.d.flags,
                                          &self.d.bounds)
                ending = ENDING_END if reason == REASON_NONE else ENDING_CORRUPT
                if ending == ENDING_END:
                    position += h.size
        if reason == NO_MEMORY:
            raise MemoryError
        return position, ending, reason

    cdef int aim(self, Cursor start, int buffer_index, Py_ssize_t limit) except -1:
        if self.d.sink.views and limit > INT32_MAX:
            raise ValueError("a view reaches 2 GiB at most: map the region in parts")
        self.d.sink.buffer_start = start
        self.d.sink.buffer_index = buffer_index
        return 0

    cdef Arena hand_out(self, Block* block, Py_ssize_t size):
        cdef Arena arena = Arena.__new__(Arena)
        arena.block = block[0]
        arena.size = size
        block[0] = POOL.get(block.usual)
        return arena

    cdef Arena hand_out_bitmap(self, Block* block, int64_t rows):
        # A batch that was taken back may have left bits behind the last row.
        if rows & 7:
            block.data[rows >> 3] &= <uint8_t>((1 << (rows & 7)) - 1)
        return self.hand_out(block, (rows + 7) >> 3)

    cdef tuple hand_out_variable(self, Variable* v, int64_t rows, bint views):
        cdef int64_t nulls = v.nulls
        valid = self.hand_out_bitmap(&v.valid, rows) if nulls else None
        if views:
            columns = (valid, self.hand_out(&v.offsets, rows * 16))
        else:
            if not grow(&v.offsets, 4):
                raise MemoryError
            (<int32_t*>v.offsets.data)[0] = 0
            columns = (valid, self.hand_out(&v.offsets, (rows + 1) * 4),
                       self.hand_out(&v.data, v.used))
        v.used = 0
        v.nulls = 0
        return columns

    def take(self):
        """Hand the columns over as buffers, laid out as Arrow wants them, and start anew.

        Answers (rows, {column bit: buffers}). The first buffer of a nullable column is its validity
        bitmap, None where nothing is null. Headers: ends, header count, key (offsets, bytes), value.
        """
        cdef Sink* s = &self.d.sink
        cdef int64_t rows = s.rows
        cdef int want = s.want
        cdef dict taken = {}
        if want & WANT_OFFSET:
            taken[WANT_OFFSET] = (self.hand_out(&s.offset, rows * 8),)
        if want & WANT_TIMESTAMP:
            valid = self.hand_out_bitmap(&s.timestamp_valid, rows) if s.timestamp_nulls else None
            taken[WANT_TIMESTAMP] = (valid, self.hand_out(&s.timestamp, rows * 8))
        if want & WANT_TIMESTAMP_MS:
            taken[WANT_TIMESTAMP_MS] = (self.hand_out(&s.timestamp_ms, rows * 8),)
        if want & WANT_TIMESTAMP_TYPE:
            taken[WANT_TIMESTAMP_TYPE] = (self.hand_out(&s.timestamp_type, rows * 4),)
        if want & WANT_KEY:
            taken[WANT_KEY] = self.hand_out_variable(&s.key, rows, s.views)
        if want & WANT_VALUE:
            taken[WANT_VALUE] = self.hand_out_variable(&s.value, rows, s.views)
        if want & WANT_HEADERS:
            if not grow(&s.header_ends, 4):
                raise MemoryError
            (<int32_t*>s.header_ends.data)[0] = 0
            taken[WANT_HEADERS] = (
                self.hand_out(&s.header_ends, (rows + 1) * 4), s.header_rows,
                self.hand_out_variable(&s.header_key, s.header_rows, False)[1:],
                self.hand_out_variable(&s.header_value, s.header_rows, False))
        if want & WANT_POSITION:
            taken[WANT_POSITION] = (self.hand_out(&s.position, rows * 8),)
        if want & WANT_BASE_OFFSET:
            taken[WANT_BASE_OFFSET] = (self.hand_out(&s.base_offset, rows * 8),)
        if want & WANT_PRODUCER_ID:
            taken[WANT_PRODUCER_ID] = (self.hand_out(&s.producer_id, rows * 8),)
        if want & WANT_PRODUCER_EPOCH:
            taken[WANT_PRODUCER_EPOCH] = (self.hand_out(&s.producer_epoch, rows * 2),)
        if want & WANT_SEQUENCE:
            taken[WANT_SEQUENCE] = (self.hand_out(&s.sequence, rows * 4),)
        if want & WANT_LEADER_EPOCH:
            taken[WANT_LEADER_EPOCH] = (self.hand_out(&s.leader_epoch, rows * 4),)
        if want & WANT_CODEC:
            taken[WANT_CODEC] = (self.hand_out(&s.codec, rows),)
        if want & WANT_IS_CONTROL:
            taken[WANT_IS_CONTROL] = (self.hand_out_bitmap(&s.is_control, rows),)
        if want & WANT_IS_TRANSACTIONAL:
            taken[WANT_IS_TRANSACTIONAL] = (self.hand_out_bitmap(&s.is_transactional, rows),)
        s.rows = 0
        s.timestamp_nulls = 0
        s.header_rows = 0
        return rows, taken
