# Headers: what the first bytes of a batch, message or wrapper say, and walks over them.

cdef struct Header:
    Cursor start
    Cursor payload  # records (magic 2), key length on (plain message), compressed bytes
    int64_t size
    int64_t payload_size
    int32_t magic
    int32_t attributes
    int32_t codec
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t count
    int64_t producer_id
    int32_t producer_epoch
    int32_t base_sequence
    int32_t leader_epoch
    uint32_t crc


cdef int parse_header(Cursor start, Cursor limit, int64_t size_max, Header* h,
                      int* reason) noexcept nogil:
    """entry := int64 offset, int32 size, 4 bytes, int8 magic, …   (size bytes after the size field)

    Answers GOES_ON with ``h`` filled, or how the region ends here, with the reason.
    """
    cdef int64_t remaining = limit - start
    cdef int64_t size
    reason[0] = REASON_NONE
    if remaining == 0:
        return ENDING_END
    if remaining < PREFIX_SIZE:
        reason[0] = REASON_ZERO_TAIL if all_zero(start, limit) else REASON_SHORT_TAIL
        return ENDING_INCOMPLETE
    size = get32(start + SIZE_AT)
    h.start = start
    h.magic = start[MAGIC_AT]
    if size < MESSAGE_SIZE_MIN_V0:
        if size == 0 and all_zero(start, limit):
            reason[0] = REASON_ZERO_TAIL
            return ENDING_INCOMPLETE
        reason[0] = REASON_SIZE_TOO_SMALL
        return ENDING_CORRUPT
    if h.magic > 2:
        reason[0] = REASON_UNKNOWN_MAGIC
        return ENDING_CORRUPT
    if size < (BATCH_LENGTH_MIN if h.magic == 2
               else MESSAGE_SIZE_MIN_V1 if h.magic == 1 else MESSAGE_SIZE_MIN_V0):
        reason[0] = REASON_SIZE_TOO_SMALL
        return ENDING_CORRUPT
    if size > size_max - LOG_OVERHEAD:
        reason[0] = REASON_SIZE_TOO_LARGE
        return ENDING_CORRUPT
    h.base_offset = get64(start + OFFSET_AT)
    if h.base_offset < 0:
        reason[0] = REASON_OFFSET_RANGE
        return ENDING_CORRUPT
    h.size = size + LOG_OVERHEAD
    if h.size > remaining:
        reason[0] = REASON_SHORT_TAIL
        return ENDING_INCOMPLETE
    if h.magic == 2:
        reason[0] = parse_batch_header(start, h)
    else:
        reason[0] = parse_message_header(start, h)
    return GOES_ON if reason[0] == REASON_NONE else ENDING_CORRUPT


cdef int parse_batch_header(Cursor start, Header* h) noexcept nogil:
    cdef int64_t last_offset_delta = get32(start + LAST_OFFSET_DELTA_AT)
    h.leader_epoch = get32(start + LEADER_EPOCH_AT)
    h.crc = <uint32_t>get32(start + CRC_AT)
    h.attributes = get16(start + ATTRIBUTES_AT)
    h.codec = h.attributes & CODEC_MASK
    h.base_timestamp = get64(start + BASE_TIMESTAMP_AT)
    h.max_timestamp = get64(start + MAX_TIMESTAMP_AT)
    h.producer_id = get64(start + PRODUCER_ID_AT)
    h.producer_epoch = get16(start + PRODUCER_EPOCH_AT)
    h.base_sequence = get32(start + BASE_SEQUENCE_AT)
    h.count = get32(start + RECORD_COUNT_AT)
    h.payload = start + BATCH_HEADER_SIZE
    h.payload_size = h.size - BATCH_HEADER_SIZE
    if h.leader_epoch < -1:
        return REASON_LEADER_EPOCH_RANGE
    if last_offset_delta < 0:
        return REASON_LAST_OFFSET_DELTA_RANGE
    if h.base_offset > INT64_MAX - last_offset_delta:
        return REASON_OFFSET_RANGE
    h.last_offset = h.base_offset + last_offset_delta
    if h.codec > CODEC_ZSTD:
        return REASON_UNKNOWN_CODEC
    if h.count < 0 or h.count > last_offset_delta + 1:
        return REASON_RECORD_COUNT_RANGE
    if h.codec == CODEC_NONE and h.count * RECORD_SIZE_MIN > h.payload_size:
        return REASON_RECORD_COUNT_RANGE
    return REASON_NONE


cdef int parse_message_header(Cursor start, Header* h) noexcept nogil:
    cdef Cursor limit = start + h.size
    cdef Cursor p
    cdef int64_t field
    h.leader_epoch = -1
    h.producer_id = -1
    h.producer_epoch = -1
    h.base_sequence = -1
    h.last_offset = h.base_offset
    h.crc = <uint32_t>get32(start + MESSAGE_CRC_AT)
    h.attributes = start[MESSAGE_ATTRIBUTES_AT]
    h.codec = h.attributes & CODEC_MASK
    h.base_timestamp = get64(start + MESSAGE_TIMESTAMP_AT) if h.magic == 1 else -1
    h.max_timestamp = h.base_timestamp
    h.count = 1
    h.payload = start + (MESSAGE_KEY_AT_V1 if h.magic == 1 else MESSAGE_KEY_AT_V0)
    h.payload_size = limit - h.payload
    if h.codec == CODEC_NONE:
        return REASON_NONE
    if h.codec > CODEC_LZ4:
        return REASON_UNKNOWN_CODEC
    # A wrapper: its first offset and its count are known only inside.
    h.base_offset = -1
    h.count = -1
    p = h.payload
    field = get32(p)
    if field < -1 or (field > 0 and field > limit - p - 8):
        return REASON_FIELD_LENGTH
    p += 4 + (field if field > 0 else 0)
    field = get32(p)
    if field < -1 or (field >= 0 and field != limit - p - 4) or (field == -1 and limit != p + 4):
        return REASON_FIELD_LENGTH
    if field <= 0:
        return REASON_EMPTY_WRAPPER
    h.payload = p + 4
    h.payload_size = field
    return REASON_NONE


cdef inline bint is_control(const Header* h) noexcept nogil:
    return h.magic == 2 and h.attributes & CONTROL_MASK != 0


cdef inline bint crc_matches(const Header* h) noexcept nogil:
    if h.magic == 2:
        return stratalog_crc32c(0, h.start + CRC_FROM, h.size - CRC_FROM) == h.crc
    return stratalog_crc32(0, h.start + MESSAGE_CRC_FROM, h.size - MESSAGE_CRC_FROM) == h.crc


cdef inline int check_place(const Header* h, int flags, int64_t expected) noexcept nogil:
    cdef int64_t first = h.base_offset if h.base_offset >= 0 else h.last_offset
    if expected < 0:
        return REASON_NONE
    if flags & CHECK_ORDER and first < expected:
        return REASON_OFFSET_ORDER
    if flags & CHECK_CONTIGUOUS and h.base_offset >= 0 and first != expected:
        return REASON_OFFSET_GAP
    return REASON_NONE


cdef inline Cursor hop_record(Cursor p, Cursor limit) noexcept nogil:
    """Behind the record at ``p``, where its length has one or two groups and fits; else NULL."""
    cdef int64_t length
    if limit - p < 2 or p[0] & 1:
        return NULL
    if p[0] < 0x80:
        length = p[0] >> 1
        p += 1
    elif p[1] < 0x80:
        length = (<int64_t>p[1] << 6) + ((p[0] & 0x7E) >> 1)
        p += 2
    else:
        return NULL
    return p + length if length <= limit - p else NULL


cdef int hop_records(Cursor p, Cursor limit, int64_t count) noexcept nogil:
    # records := (varint length, bytes{length}){count}, and nothing behind them
    cdef int64_t length, i
    for i in range(count):
        p = take_varint(p, limit, &length)
        if p == NULL:
            return REASON_VARINT
        if length < 0 or length > limit - p:
            return REASON_RECORD_LENGTH
        p += length
    return REASON_NONE if p == limit else REASON_BATCH_TRAILING_BYTES


cdef enum:
    LANES = 4


cdef void hop_lanes(const Header* h, int lanes, int* reasons) noexcept nogil:
    """hop_records() for several batches side by side.

    A length must be read to find the next one: one batch alone waits for memory at every record,
    four wait together.
    """
    cdef Cursor at[LANES]
    cdef Cursor next_at[LANES]
    cdef Cursor limits[LANES]
    cdef int64_t done = 0
    cdef int64_t together = h[0].count
    cdef bint all_hopped = lanes == LANES
    cdef int lane
    for lane in range(lanes):
        at[lane] = h[lane].payload
        limits[lane] = h[lane].payload + h[lane].payload_size
        together = min(together, h[lane].count)
    while all_hopped and done < together:
        for lane in range(LANES):
            next_at[lane] = hop_record(at[lane], limits[lane])
            all_hopped &= next_at[lane] != NULL
        if all_hopped:
            for lane in range(LANES):
                at[lane] = next_at[lane]
            done += 1
    for lane in range(lanes):
        reasons[lane] = hop_records(at[lane], limits[lane], h[lane].count - done)


cdef inline int64_t after(const Header* h) noexcept nogil:
    return h.last_offset + 1 if h.last_offset < INT64_MAX else INT64_MAX


cdef void write_row(int64_t* row, const Header* h, Cursor base) noexcept nogil:
    row[ROW_POSITION] = h.start - base
    row[ROW_SIZE] = h.size
    row[ROW_MAGIC] = h.magic
    row[ROW_ATTRIBUTES] = h.attributes
    row[ROW_BASE_OFFSET] = h.base_offset
    row[ROW_LAST_OFFSET] = h.last_offset
    row[ROW_BASE_TIMESTAMP] = h.base_timestamp
    row[ROW_MAX_TIMESTAMP] = h.max_timestamp
    row[ROW_RECORD_COUNT] = h.count
    row[ROW_PRODUCER_ID] = h.producer_id
    row[ROW_PRODUCER_EPOCH] = h.producer_epoch
    row[ROW_BASE_SEQUENCE] = h.base_sequence
    row[ROW_LEADER_EPOCH] = h.leader_epoch
    row[ROW_CRC] = h.crc
    row[ROW_PAYLOAD_POSITION] = h.payload - base
    row[ROW_PAYLOAD_SIZE] = h.payload_size


cdef Cursor region_start(const uint8_t[::1] data, Py_ssize_t position, Py_ssize_t limit) except *:
    if not 0 <= position <= limit <= data.shape[0]:
        raise ValueError(f"not a region: {position} to {limit} of {data.shape[0]} bytes")
    if data.shape[0] == 0:
        return <Cursor>b""
    return &data[0]


# A typed memoryview costs a quarter of a microsecond to make. Functions that are called once for an
# append or a lookup take the buffer as it is.

cdef Cursor buffer_start(const Py_buffer* view, Py_ssize_t position, Py_ssize_t limit) except NULL:
    if not 0 <= position <= limit <= view.len:
        raise ValueError(f"not a region: {position} to {limit} of {view.len} bytes")
    return <Cursor>view.buf if view.len else <Cursor>b""


# Work over a region, as a function that may be run under guard: see _guard.h.
ctypedef void (*Work)(void*) noexcept nogil


cdef int perform(Work work, void* argument, Cursor start, Py_ssize_t size, bint guarded) except -1 nogil:
    if not guarded:
        work(argument)
    elif stratalog_guarded(start, size, work, argument):
        with gil:
            raise BufferError("a mapped file was cut short, or could not be read, while it was read")
    return 0


cdef int perform_sized(Work work, void* argument, Cursor start, Py_ssize_t limit, bint guarded,
                       Py_ssize_t size) except -1:
    """perform(), and others may run meanwhile where there are many bytes to go through."""
    if size <= SHORT_WORK:
        return perform(work, argument, start, limit, guarded)
    with nogil:
        perform(work, argument, start, limit, guarded)
    return 0


cdef struct Walk:
    Cursor base
    Cursor p
    Cursor end
    int flags
    int64_t size_max
    int64_t expected
    int ending
    int reason
    int64_t* rows  # walk(): where header rows go …
    int64_t capacity  # … and how many there is room for
    int64_t batches
    int64_t records  # count()
    int64_t control_records


cdef inline int check_header(const Header* h, int flags, int64_t expected) noexcept nogil:
    cdef int reason = check_place(h, flags, expected)
    if reason == REASON_NONE and flags & CHECK_CRC and not crc_matches(h):
        return REASON_CRC_MISMATCH
    if reason == REASON_NONE and flags & CHECK_RECORDS and h.codec == CODEC_NONE:
        return check_content(h)
    return reason


cdef inline bint has_countable_records(const Header* h) noexcept nogil:
    return h.magic == 2 and h.codec == CODEC_NONE


cdef int take_batch(Walk* w, const Header* h) noexcept nogil:
    """Note one batch that was checked; GOES_ON, or why the walk stops in front of it."""
    if w.rows != NULL:
        write_row(w.rows + w.batches * ROW_WIDTH, h, w.base)
    elif h.count < 0 or (w.flags & CHECK_RECORDS and h.codec != CODEC_NONE):
        return ENDING_COMPRESSED
    elif is_control(h):
        w.control_records += h.count
    else:
        w.records += h.count
    w.batches += 1
    w.expected = after(h)
    w.p += h.size
    return GOES_ON


cdef int gather(Walk* w, Header* headers, int* lanes) noexcept nogil:
    """Up to LANES batches whose headers, place and CRC are sound, to have their records hopped over
    together; GOES_ON, or how it ends behind the last of them (then in w.reason why)."""
    cdef Cursor p = w.p
    cdef int64_t expected = w.expected
    cdef int ending
    lanes[0] = 0
    while lanes[0] < LANES:
        ending = parse_header(p, w.end, w.size_max, &headers[lanes[0]], &w.reason)
        if ending != GOES_ON:
            return ending
        if w.rows != NULL and w.batches + lanes[0] == w.capacity:
            return ENDING_FULL
        w.reason = check_header(&headers[lanes[0]], w.flags, expected)
        if w.reason != REASON_NONE:
            return ENDING_CORRUPT
        expected = after(&headers[lanes[0]])
        p += headers[lanes[0]].size
        lanes[0] += 1
        if not has_countable_records(&headers[lanes[0] - 1]):
            return GOES_ON
    return GOES_ON


cdef void walk_strictly(Walk* w) noexcept nogil:
    cdef Header headers[LANES]
    cdef int reasons[LANES]
    cdef int lanes, countable, lane, ending, reason
    while True:
        ending = gather(w, headers, &lanes)
        reason = w.reason
        countable = 0
        for lane in range(lanes):  # all but the last surely are, see gather()
            reasons[lane] = REASON_NONE
            countable += has_countable_records(&headers[lane])
        if countable:
            hop_lanes(headers, countable, reasons)
        for lane in range(lanes):
            w.reason = reasons[lane]
            w.ending = ENDING_CORRUPT if w.reason != REASON_NONE else take_batch(w, &headers[lane])
            if w.ending != GOES_ON:
                return
        if ending != GOES_ON:
            w.ending = ending
            w.reason = reason
            return


cdef void walk_batches(void* argument) noexcept nogil:
    cdef Walk* w = <Walk*>argument
    cdef Header h
    if w.flags & CHECK_COUNTS:
        walk_strictly(w)
        return
    while True:
        w.ending = parse_header(w.p, w.end, w.size_max, &h, &w.reason)
        if w.ending != GOES_ON:
            return
        if w.rows != NULL and w.batches == w.capacity:
            w.ending = ENDING_FULL
            return
        w.reason = check_header(&h, w.flags, w.expected)
        if w.reason != REASON_NONE:
            w.ending = ENDING_CORRUPT
            return
        w.ending = take_batch(w, &h)
        if w.ending != GOES_ON:
            return


cdef Walk start_walk(const uint8_t[::1] data, Py_ssize_t position, Py_ssize_t limit, int flags,
                     int64_t expected, int64_t size_max) except *:
    cdef Walk w
    memset(&w, 0, sizeof(w))
    w.base = region_start(data, position, limit)
    w.p = w.base + position
    w.end = w.base + limit
    w.flags = flags
    w.expected = expected
    w.size_max = size_max
    return w


def walk(const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit,
         int64_t[::1] rows not None, int flags=0, int64_t expected=-1, int64_t size_max=0x7FFFFFFF,
         *, bint guarded=False):
    """Write one header row for each batch of ``data[position:limit]``.

    Answers (rows written, position reached, ending, reason, offset expected next). ``guarded``, here
    and below: the data is a mapped file, and BufferError tells when it cannot be read any more.
    """
    cdef Walk w = start_walk(data, position, limit, flags, expected, size_max)
    w.capacity = rows.shape[0] // ROW_WIDTH
    if w.capacity == 0:
        raise ValueError("no room for a header row")
    w.rows = &rows[0]
    with nogil:
        perform(walk_batches, &w, w.base, limit, guarded)
    return w.batches, w.p - w.base, w.ending, w.reason, w.expected


def count(const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit,
          int flags=0, int64_t expected=-1, int64_t size_max=0x7FFFFFFF, *, bint guarded=False):
    """Count the records of ``data[position:limit]`` from headers alone.

    Answers (records, control records, batches, position reached, ending, reason, offset expected
    next). COMPRESSED means a wrapper: only its contents tell how many messages it holds; with
    CHECK_RECORDS any compressed batch, which the caller is to decompress and check.
    """
    cdef Walk w = start_walk(data, position, limit, flags, expected, size_max)
    with nogil:
        perform(walk_batches, &w, w.base, limit, guarded)
    return (w.records, w.control_records, w.batches, w.p - w.base, w.ending, w.reason, w.expected)


cdef struct Copy:
    uint8_t* target
    Cursor source
    size_t size


cdef void copy_bytes(void* argument) noexcept nogil:
    cdef Copy* c = <Copy*>argument
    memcpy(c.target, c.source, c.size)


def copy(const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit, *,
         bint guarded=False):
    """The bytes of ``data[position:limit]``, as bytes of their own."""
    cdef Cursor base = region_start(data, position, limit)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, limit - position)
    cdef Copy c
    c.target = <uint8_t*>PyBytes_AS_STRING(out)
    c.source = base + position
    c.size = limit - position
    with nogil:
        perform(copy_bytes, &c, base, limit, guarded)
    return out
