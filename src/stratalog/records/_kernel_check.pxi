# The records of one uncompressed batch, looked through and not taken: what an append must know of
# them, and the search for a time among them.

cdef extern from *:
    """
    static inline const uint8_t *stratalog_apart(const uint8_t *p) {
    #if defined(__GNUC__) || defined(__clang__)
        __asm__("" : "+r"(p));
    #endif
        return p;
    }
    """
    Cursor stratalog_apart(Cursor p) noexcept nogil


cdef inline Cursor take_record(Cursor p, Cursor limit, int64_t* timestamp_delta,
                               int64_t* offset_delta, int64_t* key_size, int* reason) noexcept nogil:
    """record := varint length, int8 attributes, varlong timestamp delta, varint offset delta,
    field key, field value, headers

    Behind the record; or NULL, with the reason for which decode_records() would refuse it.
    """
    cdef Cursor end
    cdef Cursor behind
    cdef Cursor field
    cdef int64_t length, value_size
    p = take_varint(p, limit, &length)
    if p == NULL:
        reason[0] = REASON_VARINT
        return NULL
    if length < 1 or length > limit - p:
        reason[0] = REASON_RECORD_LENGTH
        return NULL
    end = p + length
    # The same place, but the compiler does not know: where the next record starts is then a matter of
    # this one's length alone, and the processor begins with it before it is through with this one.
    behind = stratalog_apart(end)
    p = take_varlong(p + 1, end, timestamp_delta)
    if p == NULL:
        reason[0] = REASON_VARINT
        return NULL
    p = take_varint(p, end, offset_delta)
    if p == NULL:
        reason[0] = REASON_VARINT
        return NULL
    p = take_field(p, end, &field, key_size, reason)
    if p == NULL:
        return NULL
    p = take_field(p, end, &field, &value_size, reason)
    if p == NULL:
        return NULL
    if offset_delta[0] < 0:
        reason[0] = REASON_OFFSET_DELTA_RANGE
        return NULL
    if end - p == 1 and p[0] == 0:  # no headers, as most
        return behind
    p = take_headers(NULL, p, end, False, reason)  # kept nowhere, so no sink is looked at
    if p == NULL:
        return NULL
    if p != end:
        reason[0] = REASON_RECORD_TRAILING_BYTES
        return NULL
    return behind


cdef inline bint may_hold(Cursor p, Cursor limit, int64_t count) noexcept nogil:
    return 0 <= count <= (limit - p) // RECORD_SIZE_MIN


cdef struct RecordCheck:
    Cursor p
    Cursor limit
    int64_t count
    int64_t base_timestamp
    int reason
    int64_t row
    int64_t min_timestamp
    int64_t max_timestamp
    int64_t max_row
    int64_t gap_row
    int64_t null_key_row


cdef void look_until(RecordCheck* c, Cursor stop) noexcept nogil:
    """Go on with the records that begin before ``stop``; with the limit itself, to the end."""
    cdef RecordCheck seen = c[0]  # a copy, so that the loop keeps it in registers
    cdef Cursor p = seen.p
    cdef int64_t row = seen.row, timestamp = 0, delta = 0, key_size = 0
    cdef int reason = REASON_NONE
    while row < seen.count and (p < stop or stop == seen.limit):
        p = take_record(p, seen.limit, &timestamp, &delta, &key_size, &reason)
        if p == NULL:
            break
        timestamp = wrapping_add(seen.base_timestamp, timestamp)
        if timestamp < seen.min_timestamp:
            seen.min_timestamp = timestamp
        if timestamp > seen.max_timestamp:
            seen.max_timestamp = timestamp
            seen.max_row = row
        if delta != row and seen.gap_row < 0:
            seen.gap_row = row
        if key_size < 0 and seen.null_key_row < 0:
            seen.null_key_row = row
        row += 1
    if stop == seen.limit and p != NULL and p != seen.limit:
        reason = REASON_BATCH_TRAILING_BYTES
    seen.p = p
    seen.reason = reason
    seen.row = row
    c[0] = seen


cdef void begin_look(RecordCheck* c) noexcept nogil:
    c.row = 0
    c.min_timestamp = INT64_MAX if c.count > 0 else -1
    c.max_timestamp = c.max_row = c.gap_row = c.null_key_row = -1
    c.reason = REASON_NONE if may_hold(c.p, c.limit, c.count) else REASON_RECORD_COUNT_RANGE


cdef void look_through(void* argument) noexcept nogil:
    cdef RecordCheck* c = <RecordCheck*>argument
    begin_look(c)
    if c.reason == REASON_NONE:
        look_until(c, c.limit)


def check_records(data, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t base_timestamp):
    """Look through the records of one batch, which ``data[start:end]`` must hold and nothing else.

    Answers (reason, row, min timestamp, max timestamp, row of the max, first row whose offset delta
    is not its number, first row without a key); -1 for what there is none of. The max starts from
    -1. Where the records are wrong: the reason, the row, and -1 for all else.
    """
    cdef Py_buffer view
    cdef RecordCheck c
    cdef Cursor base
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = buffer_start(&view, start, end)
        c.p = base + start
        c.limit = base + end
        c.count = count
        c.base_timestamp = base_timestamp
        perform_sized(look_through, &c, base, end, False, end - start)
    finally:
        PyBuffer_Release(&view)
    if c.reason != REASON_NONE:
        return c.reason, c.row, -1, -1, -1, -1, -1
    return (c.reason, -1, c.min_timestamp, c.max_timestamp, c.max_row, c.gap_row, c.null_key_row)


cdef struct TimeSearch:
    Cursor p
    Cursor limit
    int64_t count
    int64_t base_timestamp
    int64_t target
    int64_t delta_min
    int64_t delta  # what is answered: -1 for none, -2 where the records are wrong …
    int64_t timestamp  # … and then the reason stands here


cdef void search_times(void* argument) noexcept nogil:
    cdef TimeSearch* s = <TimeSearch*>argument
    cdef Cursor p = s.p
    cdef int64_t row, timestamp = 0, delta = 0, key_size = 0
    cdef int reason = REASON_NONE
    s.delta = -2
    if not may_hold(p, s.limit, s.count):
        s.timestamp = REASON_RECORD_COUNT_RANGE
        return
    for row in range(s.count):
        p = take_record(p, s.limit, &timestamp, &delta, &key_size, &reason)
        if p == NULL:
            s.timestamp = reason
            return
        timestamp = wrapping_add(s.base_timestamp, timestamp)
        if timestamp >= s.target and delta >= s.delta_min:
            s.delta = delta
            s.timestamp = timestamp
            return
    if p != s.limit:
        s.timestamp = REASON_BATCH_TRAILING_BYTES
        return
    s.delta = -1
    s.timestamp = -1


def find_timestamp(data, Py_ssize_t start, Py_ssize_t end, int64_t count, int64_t base_timestamp,
                   int64_t target, int64_t delta_min):
    """The first record of a batch at or after a time: (offset delta, timestamp), or (-1, -1).

    ``data[start:end]`` are its records, ``delta_min`` is the least offset delta that counts. Where a
    record before the one that is looked for is wrong: (-2, reason).
    """
    cdef Py_buffer view
    cdef TimeSearch s
    cdef Cursor base
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = buffer_start(&view, start, end)
        s.p = base + start
        s.limit = base + end
        s.count = count
        s.base_timestamp = base_timestamp
        s.target = target
        s.delta_min = delta_min
        perform_sized(search_times, &s, base, end, False, end - start)
    finally:
        PyBuffer_Release(&view)
    return s.delta, s.timestamp


cdef enum:
    CHECKED_AT_ONCE = 512 * 1024  # bytes: what a CRC has gone over is near when its records are looked at


cdef struct PlainCheck:
    RecordCheck records
    Cursor base
    Cursor limit
    int64_t size_max
    int64_t now
    int64_t before_max
    int64_t after_max
    bint needs_key
    bint is_plain
    int64_t row[ROW_WIDTH]


cdef bint check_bytes(RecordCheck* r, const Header* h) noexcept nogil:
    """The CRC and the records in one go over the bytes, piece by piece."""
    cdef Cursor at = h.start + CRC_FROM
    cdef Cursor limit = h.start + h.size
    cdef int64_t size
    cdef uint32_t crc = 0
    begin_look(r)
    while at < limit and r.reason == REASON_NONE:
        size = min(limit - at, CHECKED_AT_ONCE)
        crc = stratalog_crc32c(crc, at, size)
        at += size
        look_until(r, at)
    return r.reason == REASON_NONE and crc == h.crc


cdef void check_plain(void* argument) noexcept nogil:
    cdef PlainCheck* c = <PlainCheck*>argument
    cdef RecordCheck* r = &c.records
    cdef Header h
    cdef int reason = REASON_NONE
    c.is_plain = False
    if parse_header(c.base, c.limit, 0x7FFFFFFF, &h, &reason) != GOES_ON:
        return
    if (h.magic != 2 or h.start + h.size != c.limit or h.size > c.size_max
            or h.attributes & (CODEC_MASK | APPEND_TIME_MASK | CONTROL_MASK)
            or h.base_offset != 0 or h.count < 1 or h.last_offset != h.count - 1
            or (h.producer_id >= 0 and h.base_sequence < 0)):
        return
    r.p = h.payload
    r.limit = h.payload + h.payload_size
    r.count = h.count
    r.base_timestamp = h.base_timestamp
    if (not check_bytes(r, &h) or r.gap_row >= 0 or r.max_timestamp != h.max_timestamp
            or is_apart(c.now, r.min_timestamp, c.before_max)
            or is_apart(r.max_timestamp, c.now, c.after_max)
            or (c.needs_key and r.null_key_row >= 0)):
        return
    write_row(c.row, &h, c.base)
    c.is_plain = True


cdef inline bint is_apart(int64_t later, int64_t earlier, int64_t most) noexcept nogil:
    """Whether ``later`` is more than ``most`` behind ``earlier``, in numbers that do not end at 64 bits."""
    return later > earlier and <uint64_t>later - <uint64_t>earlier > <uint64_t>most


cdef array.array NO_ROW = array.array("q")


def admit_plain(data, int64_t size_max, int64_t now, int64_t before_max, int64_t after_max,
                bint needs_key):
    """``data`` as memory that may be written, and its header row, where it is one batch of a producer in
    which a log has nothing to change and nothing to refuse, as most are. None for every other, damaged
    or not.

    It is of magic 2 and not compressed, of CreateTime, no control batch, numbered from 0 without
    gaps, its header true, its records at most ``before_max`` before ``now`` and ``after_max`` after
    it, and with keys where ``needs_key``. What may not be written is copied.
    """
    cdef Py_buffer view
    cdef PlainCheck c
    cdef array.array row
    if before_max < 0 or after_max < 0:
        raise ValueError("not a span of time")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        c.base = buffer_start(&view, 0, view.len)
        c.limit = c.base + view.len
        c.size_max = size_max
        c.now = now
        c.before_max = before_max
        c.after_max = after_max
        c.needs_key = needs_key
        perform_sized(check_plain, &c, c.base, view.len, False, view.len)
        if not c.is_plain:
            return None
        if view.readonly:
            data = PyByteArray_FromStringAndSize(<char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    row = array.clone(NO_ROW, ROW_WIDTH, False)
    memcpy(row.data.as_voidptr, c.row, sizeof(c.row))
    return data, row


cdef bint takes(const void* row, const void* state, int64_t position, int64_t segment_bytes,
                int64_t first_timestamp, int64_t span_ms, int64_t last_offset) noexcept nogil:
    """Whether a segment takes a batch, as storage.roll says. No, too, where its age is not a matter of
    timestamps."""
    cdef int64_t difference = 0
    if (number_at(row, ROW_SIZE) > wrapping_subtract(segment_bytes, position)
            or number_at(state, STATE_OFFSET_SLOTS) <= 0
            or number_at(state, STATE_TIME_SLOTS) <= 0
            or not relative(last_offset, number_at(state, STATE_BASE_OFFSET), &difference)):
        return False
    return position == 0 or (
        first_timestamp >= 0 and span_ms >= 0
        and not is_apart(number_at(row, ROW_MAX_TIMESTAMP), first_timestamp, span_ms))


def place_plain(data, row, state, int64_t position, int64_t segment_bytes, int64_t first_timestamp,
                int64_t span_ms, int64_t next_offset, int32_t leader_epoch):
    """Stamp a batch of admit_plain() with its offsets and leader epoch, in place and in its row, where
    the segment takes it: its last offset. -1, and nothing is changed, where it is to be looked at
    more closely.

    The segment holds ``position`` of ``segment_bytes`` bytes, its first batch is of
    ``first_timestamp``, others may be ``span_ms`` later, and ``state`` are the numbers of
    layout.IndexState.
    """
    cdef Py_buffer view
    cdef Py_buffer given
    cdef Py_buffer held
    cdef uint8_t* p
    cdef int64_t last_offset = -1, count
    if position < 0 or segment_bytes < 0:
        raise ValueError(f"no segment: {position} of {segment_bytes} bytes")
    get_numbers(row, &given, ROW_WIDTH, True)
    try:
        get_numbers(state, &held, INDEX_STATE_WIDTH, False)
        try:
            PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
            try:
                count = number_at(given.buf, ROW_RECORD_COUNT)
                if view.len < BATCH_HEADER_SIZE or view.len != number_at(given.buf, ROW_SIZE):
                    raise ValueError("not the row of this batch")
                if (count >= 1 and 0 <= next_offset <= INT64_MAX - count
                        and takes(given.buf, held.buf, position, segment_bytes, first_timestamp,
                                  span_ms, next_offset + count - 1)):
                    last_offset = next_offset + count - 1
                    p = <uint8_t*>view.buf
                    put64(p + OFFSET_AT, next_offset)
                    put32(p + LEADER_EPOCH_AT, leader_epoch)
                    set_number(given.buf, ROW_BASE_OFFSET, next_offset)
                    set_number(given.buf, ROW_LAST_OFFSET, last_offset)
                    set_number(given.buf, ROW_LEADER_EPOCH, leader_epoch)
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&held)
    finally:
        PyBuffer_Release(&given)
    return last_offset
