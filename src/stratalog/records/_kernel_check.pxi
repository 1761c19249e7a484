# The records of one uncompressed batch, looked through and not taken: what an append must know of
# them, and the search for a time among them.

cdef inline Cursor take_record(Cursor p, Cursor limit, int64_t* timestamp_delta,
                               int64_t* offset_delta, int64_t* key_size, int* reason) noexcept nogil:
    """record := varint length, int8 attributes, varlong timestamp delta, varint offset delta,
    field key, field value, headers

    Behind the record; or NULL, with the reason for which decode_records() would refuse it.
    """
    cdef Cursor end
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
    p = take_headers(NULL, p, end, False, reason)  # kept nowhere, so no sink is looked at
    if p != NULL and p != end:
        reason[0] = REASON_RECORD_TRAILING_BYTES
        return NULL
    return p


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


cdef void look_through(void* argument) noexcept nogil:
    cdef RecordCheck* c = <RecordCheck*>argument
    cdef RecordCheck seen = c[0]  # a copy, so that the loop keeps it in registers
    cdef Cursor p = seen.p
    cdef int64_t row = 0, timestamp = 0, delta = 0, key_size = 0
    cdef int reason = REASON_NONE
    seen.min_timestamp = INT64_MAX if seen.count > 0 else -1
    seen.max_timestamp = seen.max_row = seen.gap_row = seen.null_key_row = -1
    if not may_hold(p, seen.limit, seen.count):
        c.reason = REASON_RECORD_COUNT_RANGE
        c.row = 0
        return
    while row < seen.count:
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
    if p != NULL and p != seen.limit:
        reason = REASON_BATCH_TRAILING_BYTES
    seen.reason = reason
    seen.row = row
    c[0] = seen


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


cdef struct PlainCheck:
    RecordCheck records
    Cursor base
    Cursor limit
    int64_t size_max
    int64_t time_min
    int64_t time_max
    bint needs_key
    bint is_plain
    int64_t row[ROW_WIDTH]


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
            or (h.producer_id >= 0 and h.base_sequence < 0) or not crc_matches(&h)):
        return
    r.p = h.payload
    r.limit = h.payload + h.payload_size
    r.count = h.count
    r.base_timestamp = h.base_timestamp
    look_through(r)
    if (r.reason != REASON_NONE or r.gap_row >= 0 or r.max_timestamp != h.max_timestamp
            or r.min_timestamp < c.time_min or r.max_timestamp > c.time_max
            or (c.needs_key and r.null_key_row >= 0)):
        return
    write_row(c.row, &h, c.base)
    c.is_plain = True


def is_plain(data, rows, int64_t size_max, int64_t time_min, int64_t time_max, bint needs_key):
    """Whether ``data`` is one batch of a producer in which a log has nothing to change and nothing to
    refuse, as most are; its header row is then written. False for every other, damaged or not.

    It is of magic 2 and not compressed, of CreateTime, no control batch, numbered from 0 without
    gaps, its header true, its records between the two times, and with keys where ``needs_key``.
    """
    cdef Py_buffer view
    cdef Py_buffer held
    cdef PlainCheck c
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        c.base = buffer_start(&view, 0, view.len)
        c.limit = c.base + view.len
        c.size_max = size_max
        c.time_min = time_min
        c.time_max = time_max
        c.needs_key = needs_key
        perform_sized(check_plain, &c, c.base, view.len, False, view.len)
    finally:
        PyBuffer_Release(&view)
    if c.is_plain:
        get_numbers(rows, &held, ROW_WIDTH, True)
        memcpy(held.buf, c.row, sizeof(c.row))
        PyBuffer_Release(&held)
    return c.is_plain
