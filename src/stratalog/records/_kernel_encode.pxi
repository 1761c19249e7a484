# Columns into records and messages, and the edits in place.

cdef struct Field:  # a binary column of Arrow's, read only
    const uint8_t* valid
    const int32_t* ends
    const uint8_t* data
    int64_t data_size
    int64_t first


cdef class Rows:
    """Columns to encode: buffers laid out as Arrow has them, checked against ``count`` once.

    ``timestamps`` is (validity or None, int64 buffer, first row), ``offsets`` (int64 buffer, first
    row) or None for counting from the batch's base, ``key`` and ``value`` (validity or None, int32
    offsets, bytes, first row) or None for all null, ``headers`` (validity or None, int32 ends,
    first row, keys, values) or None. A timestamp becomes value * multiply // divide milliseconds.
    With ``order``, int64 numbers of rows, the rows are those of the columns, in that order: a part of
    them is written without being copied first. Such rows bring no offsets.
    The buffers are held, and must not change while they are.
    """

    cdef readonly int64_t count
    cdef list held
    cdef const int64_t* order
    cdef const uint8_t* timestamp_valid
    cdef const int64_t* timestamps
    cdef int64_t first_timestamp
    cdef int64_t multiply
    cdef int64_t divide
    cdef int64_t default_timestamp
    cdef const int64_t* offsets
    cdef int64_t first_offset
    cdef bint has_key
    cdef bint has_value
    cdef bint has_header_column
    cdef Field key
    cdef Field value
    cdef const uint8_t* list_valid
    cdef const int32_t* list_ends
    cdef int64_t first_list
    cdef Field header_key
    cdef Field header_value
    cdef int64_t header_count

    def __init__(self, int64_t count, *, timestamps=None, int64_t multiply=1, int64_t divide=1,
                 int64_t default_timestamp=-1, offsets=None, key=None, value=None, headers=None,
                 order=None):
        if count < 0 or multiply < 1 or divide < 1:
            raise ValueError("a count of rows and a scale are positive")
        if self.held is not None:
            raise ValueError("rows are made once")  # their pointers would outlive the buffers
        self.held = []
        self.count = count
        self.multiply = multiply
        self.divide = divide
        self.default_timestamp = default_timestamp
        if timestamps is not None:
            valid, values, first = timestamps
            self.starts_at(first)
            self.timestamp_valid = self.bitmap(valid, first, count)
            self.timestamps = <const int64_t*>self.hold(values, (first + count) * 8, 8)
            self.first_timestamp = first
        if offsets is not None:
            values, first = offsets
            self.starts_at(first)
            self.offsets = <const int64_t*>self.hold(values, (first + count) * 8, 8)
            self.first_offset = first
        self.has_key = key is not None
        if self.has_key:
            self.key = self.field(key, count)
        self.has_value = value is not None
        if self.has_value:
            self.value = self.field(value, count)
        self.has_header_column = headers is not None
        if self.has_header_column:
            valid, ends, first, keys, values = headers
            self.starts_at(first)
            self.list_valid = self.bitmap(valid, first, count)
            self.list_ends = <const int32_t*>self.hold(ends, (first + count + 1) * 4, 4)
            self.first_list = first
            self.header_count = min(
                len(memoryview(part[1]).cast("B")) // 4 - 1 - part[3] for part in (keys, values))
            if self.header_count < 0:
                raise ValueError("a column is shorter than its row count")
            self.header_key = self.field(keys, self.header_count)
            self.header_value = self.field(values, self.header_count)
        if order is not None:
            if self.offsets != NULL:
                raise ValueError("rows that bring their offsets have an order")
            self.count = self.check_order(order, count)

    @property
    def has_offsets(self):
        """Whether the rows bring their own offsets."""
        return self.offsets != NULL

    @property
    def has_headers(self):
        """Whether any row may bring record headers."""
        return self.has_header_column and self.header_count > 0

    cdef int64_t check_order(self, buffer, int64_t count) except -1:
        cdef int64_t size = len(memoryview(buffer).cast("B")) // 8
        cdef int64_t i
        self.order = <const int64_t*>self.hold(buffer, size * 8, 8)
        for i in range(size):
            if self.order[i] < 0 or self.order[i] >= count:
                raise ValueError("no such row")
        return size

    cdef int starts_at(self, int64_t first) except -1:
        if first < 0:
            raise ValueError("a column starts before its buffers")
        return 0

    cdef const uint8_t* hold(self, buffer, int64_t size, int alignment=1) except? NULL:
        cdef const uint8_t[::1] view = memoryview(buffer).cast("B")
        if size < 0 or view.shape[0] < size:
            raise ValueError("a column is shorter than its row count")
        if view.shape[0] and <size_t>&view[0] % alignment:
            view = bytes(view)  # a slice of somebody's file or message: numbers are read where they lie
        self.held.append(view)
        return &view[0] if view.shape[0] else <const uint8_t*>b""

    cdef const uint8_t* bitmap(self, buffer, int64_t first, int64_t count) except? NULL:
        if buffer is None:
            return NULL
        return self.hold(buffer, (first + count + 7) >> 3)

    cdef Field field(self, parts, int64_t count) except *:
        cdef Field f
        valid, ends, data, first = parts
        self.starts_at(first)
        f.valid = self.bitmap(valid, first, count)
        f.ends = <const int32_t*>self.hold(ends, (first + count + 1) * 4, 4)
        f.data = self.hold(data, 0)
        f.data_size = len(memoryview(data).cast("B"))
        f.first = first
        return f


cdef inline bint get_bit(const uint8_t* bitmap, int64_t row) noexcept nogil:
    return bitmap == NULL or bitmap[row >> 3] >> (row & 7) & 1


cdef inline int field_of(const Field* f, bint present, int64_t row, Cursor* data,
                         int64_t* size) noexcept nogil:
    cdef int64_t start, end
    if not present or not get_bit(f.valid, f.first + row):
        size[0] = -1
        return REASON_NONE
    start = f.ends[f.first + row]
    end = f.ends[f.first + row + 1]
    if start < 0 or end < start or end > f.data_size:
        return REASON_FIELD_LENGTH
    data[0] = f.data + start
    size[0] = end - start
    return REASON_NONE


cdef inline int64_t row_of(Rows rows, int64_t row) noexcept nogil:
    """Where in the columns a row stands."""
    return row if rows.order == NULL else rows.order[row]


cdef inline int64_t timestamp_of(Rows rows, int64_t row) noexcept nogil:
    cdef int64_t value
    row = row_of(rows, row)
    if rows.timestamps == NULL or not get_bit(rows.timestamp_valid, rows.first_timestamp + row):
        return rows.default_timestamp
    value = rows.timestamps[rows.first_timestamp + row]
    if rows.multiply != 1:
        value = <int64_t>(<uint64_t>value * <uint64_t>rows.multiply)
    if rows.divide != 1:  # down, also below zero
        value = value // rows.divide - (value % rows.divide < 0)
    return value


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef extern from *:
    int __builtin_clzll(unsigned long long) noexcept nogil


cdef inline int64_t number_size(int64_t value) noexcept nogil:
    return (63 - __builtin_clzll(zigzag(value) | 1)) // 7 + 1


cdef inline uint8_t* put_number(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint64_t raw = zigzag(value)
    while raw >= 0x80:
        out[0] = <uint8_t>(raw | 0x80)
        raw >>= 7
        out += 1
    out[0] = <uint8_t>raw
    return out + 1


cdef inline uint8_t* put_number_field(uint8_t* out, Cursor data, int64_t size,
                                      Cursor limit) noexcept nogil:
    out = put_number(out, size)
    if size > 0:
        copy_field(out, data, size, limit)
        out += size
    return out


cdef inline uint8_t* put32(uint8_t* out, int64_t value) noexcept nogil:
    out[0] = <uint8_t>(value >> 24)
    out[1] = <uint8_t>(value >> 16)
    out[2] = <uint8_t>(value >> 8)
    out[3] = <uint8_t>value
    return out + 4


cdef inline uint8_t* put64(uint8_t* out, int64_t value) noexcept nogil:
    return put32(put32(out, value >> 32), value)


cdef int header_range(Rows rows, int64_t row, int64_t* start, int64_t* end) noexcept nogil:
    start[0] = 0
    end[0] = 0
    row = row_of(rows, row)
    if not rows.has_header_column or not get_bit(rows.list_valid, rows.first_list + row):
        return REASON_NONE
    start[0] = rows.list_ends[rows.first_list + row]
    end[0] = rows.list_ends[rows.first_list + row + 1]
    if start[0] < 0 or end[0] < start[0] or end[0] > rows.header_count:
        return REASON_HEADER_COUNT
    return REASON_NONE


cdef int headers_size(Rows rows, int64_t start, int64_t end, int64_t* size) noexcept nogil:
    cdef int64_t i, key_size, value_size
    cdef Cursor data
    cdef int reason
    size[0] = number_size(end - start)
    for i in range(start, end):
        reason = field_of(&rows.header_key, True, i, &data, &key_size)
        if reason == REASON_NONE and key_size < 0:
            reason = REASON_HEADER_KEY_NULL
        if reason == REASON_NONE:
            reason = field_of(&rows.header_value, True, i, &data, &value_size)
        if reason != REASON_NONE:
            return reason
        size[0] += number_size(key_size) + key_size + number_size(value_size)
        size[0] += value_size if value_size > 0 else 0
    return REASON_NONE


cdef uint8_t* put_headers(Rows rows, int64_t start, int64_t end, uint8_t* out) noexcept nogil:
    # headers_size() found them sound.
    cdef Cursor data = NULL
    cdef int64_t size = 0, i
    out = put_number(out, end - start)
    for i in range(start, end):
        field_of(&rows.header_key, True, i, &data, &size)
        out = put_number_field(out, data, size, data)
        field_of(&rows.header_value, True, i, &data, &size)
        out = put_number_field(out, data, size, data)
    return out


cdef inline int offset_of(Rows rows, int64_t row, int64_t first_row, int64_t base_offset,
                          int64_t* offset) noexcept nogil:
    if rows.offsets == NULL:
        if base_offset < 0 or base_offset > INT64_MAX - (row - first_row):
            return REASON_OFFSET_RANGE
        offset[0] = base_offset + (row - first_row)
    else:
        offset[0] = rows.offsets[rows.first_offset + row]
        if offset[0] < 0:
            return REASON_OFFSET_RANGE
        if row > first_row and offset[0] <= rows.offsets[rows.first_offset + row - 1]:
            return REASON_OFFSET_ORDER
    return REASON_NONE


cdef struct Encoding:  # how far a batch has come
    int64_t first_row
    int64_t row
    int64_t row_end
    int64_t written
    int64_t size_target
    bint base_given
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t base_offset
    int64_t last_delta
    int64_t room_wanted  # above 0: the next record needs so much


cdef int encode_some(Rows rows, Encoding* e, uint8_t* out, int64_t room) noexcept nogil:
    """record := varint length, int8 attributes, varlong timestamp delta, varint offset delta,
    field key, field value, headers

    Writes to ``out`` until the batch is done, a row is wrong (the reason), or ``room`` is used up.
    Behind the room lie BLOCK_SLACK bytes more."""
    cdef Cursor key = NULL
    cdef Cursor value = NULL
    cdef Cursor key_limit = rows.key.data + rows.key.data_size
    cdef Cursor value_limit = rows.value.data + rows.value.data_size
    cdef int64_t timestamp, offset, delta, key_size = -1, value_size = -1, size, rest
    cdef int64_t header_start = 0, header_end = 0
    cdef uint8_t* p
    cdef int reason
    e.room_wanted = 0
    while e.row < e.row_end:
        timestamp = timestamp_of(rows, e.row)
        reason = offset_of(rows, e.row, e.first_row, 0, &offset)
        if reason != REASON_NONE:
            return reason
        if e.row == e.first_row:
            e.base_offset = offset
            if not e.base_given:
                e.base_timestamp = timestamp
        delta = offset - e.base_offset
        if delta > INT32_MAX:
            return REASON_NONE
        reason = field_of(&rows.key, rows.has_key, row_of(rows, e.row), &key, &key_size)
        if reason == REASON_NONE:
            reason = field_of(&rows.value, rows.has_value, row_of(rows, e.row), &value,
                              &value_size)
        rest = 1
        if rows.has_header_column and reason == REASON_NONE:
            reason = header_range(rows, e.row, &header_start, &header_end)
            if reason == REASON_NONE:
                reason = headers_size(rows, header_start, header_end, &rest)
        if reason != REASON_NONE:
            return reason
        size = (1 + number_size(wrapping_subtract(timestamp, e.base_timestamp)) + number_size(delta)
                + number_size(key_size) + (key_size if key_size > 0 else 0)
                + number_size(value_size) + (value_size if value_size > 0 else 0) + rest)
        if size > INT32_MAX:
            return REASON_SIZE_TOO_LARGE
        rest = e.written + number_size(size) + size
        if e.row > e.first_row and rest > e.size_target:
            return REASON_NONE
        if rest > INT32_MAX - BATCH_LENGTH_MIN:
            return REASON_SIZE_TOO_LARGE
        if rest > room:
            e.room_wanted = rest
            return REASON_NONE
        p = put_number(out + e.written, size)
        p[0] = 0  # attributes
        p = put_number(p + 1, wrapping_subtract(timestamp, e.base_timestamp))
        p = put_number(p, delta)
        p = put_number_field(p, key, key_size, key_limit)
        p = put_number_field(p, value, value_size, value_limit)
        if rows.has_header_column:
            p = put_headers(rows, header_start, header_end, p)
        else:
            p[0] = 0
        e.written = rest
        e.last_delta = delta
        if timestamp > e.max_timestamp:
            e.max_timestamp = timestamp
        e.row += 1
    return REASON_NONE


def encode_records(bytearray out not None, Rows rows not None, int64_t row, int64_t row_end,
                   int64_t size_target, base_timestamp=None):
    """Append the records of one batch to ``out``: rows from ``row`` on, at least one, until their
    bytes would pass ``size_target`` or an offset would be out of the batch's reach.

    Answers (row reached, base offset, last offset delta, base timestamp, largest timestamp or -1,
    reason); a reason other than NONE names what is wrong with that row, and nothing was appended.
    The base offset is 0 unless the rows bring offsets; the base timestamp is the first record's
    unless one is given (a delete horizon).
    """
    cdef Py_ssize_t at = PyByteArray_GET_SIZE(out)
    cdef int64_t room = min(max(size_target, 512), 1 << 16)
    cdef Encoding e
    cdef uint8_t* p
    cdef int reason
    if not 0 <= row < row_end <= rows.count:
        raise ValueError("no such rows")
    memset(&e, 0, sizeof(e))
    e.first_row = row
    e.row = row
    e.row_end = row_end
    e.size_target = size_target
    e.base_given = base_timestamp is not None
    e.base_timestamp = base_timestamp if e.base_given else -1
    e.max_timestamp = -1
    while True:
        PyByteArray_Resize(out, at + room + BLOCK_SLACK)
        p = <uint8_t*>PyByteArray_AS_STRING(out) + at
        with nogil:
            reason = encode_some(rows, &e, p, room)
        if e.room_wanted == 0:
            break
        room = max(2 * room, e.room_wanted)
    PyByteArray_Resize(out, at + (e.written if reason == REASON_NONE else 0))
    return e.row, e.base_offset, e.last_delta, e.base_timestamp, e.max_timestamp, reason


cdef void write_header(uint8_t* p, const Header* h, int64_t size) noexcept nogil:
    """Write the header of a batch of magic 2 over the first bytes of a batch of ``size`` bytes."""
    put64(p + OFFSET_AT, h.base_offset)
    put32(p + SIZE_AT, size - LOG_OVERHEAD)
    put32(p + LEADER_EPOCH_AT, h.leader_epoch)
    p[MAGIC_AT] = 2
    p[ATTRIBUTES_AT] = <uint8_t>(h.attributes >> 8)
    p[ATTRIBUTES_AT + 1] = <uint8_t>h.attributes
    put32(p + LAST_OFFSET_DELTA_AT, wrapping_subtract(h.last_offset, h.base_offset))
    put64(p + BASE_TIMESTAMP_AT, h.base_timestamp)
    put64(p + MAX_TIMESTAMP_AT, h.max_timestamp)
    put64(p + PRODUCER_ID_AT, h.producer_id)
    p[PRODUCER_EPOCH_AT] = <uint8_t>(h.producer_epoch >> 8)
    p[PRODUCER_EPOCH_AT + 1] = <uint8_t>h.producer_epoch
    put32(p + BASE_SEQUENCE_AT, h.base_sequence)
    put32(p + RECORD_COUNT_AT, h.count)
    put32(p + CRC_AT, stratalog_crc32c(0, p + CRC_FROM, size - CRC_FROM))


def write_batch_header(bytearray out not None, Py_ssize_t at, int64_t base_offset,
                       int32_t leader_epoch, int16_t attributes, int32_t last_offset_delta,
                       int64_t base_timestamp, int64_t max_timestamp, int64_t producer_id,
                       int16_t producer_epoch, int32_t base_sequence, int32_t record_count):
    """Write a header over the 61 bytes that were left for it at ``at``: the batch is all that
    follows in ``out``. Its size and its CRC are made here."""
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(out) - at
    cdef uint8_t* p
    cdef Header h
    if at < 0 or size < BATCH_HEADER_SIZE or size - LOG_OVERHEAD > INT32_MAX:
        raise ValueError("no room for a header, or a batch of 2 GiB")
    h.base_offset = base_offset
    h.leader_epoch = leader_epoch
    h.attributes = attributes
    h.last_offset = wrapping_add(base_offset, last_offset_delta)
    h.base_timestamp = base_timestamp
    h.max_timestamp = max_timestamp
    h.producer_id = producer_id
    h.producer_epoch = producer_epoch
    h.base_sequence = base_sequence
    h.count = record_count
    p = <uint8_t*>PyByteArray_AS_STRING(out) + at
    with nogil:
        write_header(p, &h, size)


def encode_messages(bytearray out not None, Rows rows not None, int64_t row, int64_t row_end,
                    int64_t size_target, int magic, int attributes, int64_t base_offset,
                    bint relative, append_time=None):
    """Append plain messages of magic 0 or 1 to ``out``, with their CRCs: rows from ``row`` on, at
    least one, until their bytes would pass ``size_target``.

    With ``relative`` the offsets count from the first one, as inside a magic 1 wrapper; an
    ``append_time`` stands in the place of every row's own timestamp. Answers
    (row reached, first offset, last offset, largest timestamp, reason) like encode_records().
    """
    cdef int64_t i = row
    cdef int64_t total = 0, offset = 0, first = base_offset, last = base_offset
    cdef int64_t timestamp = -1, max_timestamp = -1, key_size = -1, value_size = -1, size = 0
    cdef int64_t overhead = LOG_OVERHEAD + (
        MESSAGE_SIZE_MIN_V1 if magic == 1 else MESSAGE_SIZE_MIN_V0)
    cdef Py_ssize_t at = PyByteArray_GET_SIZE(out)
    cdef Cursor key = NULL
    cdef Cursor value = NULL
    cdef uint8_t* p
    cdef uint8_t* start
    cdef int reason = REASON_NONE
    cdef bint appended = append_time is not None
    cdef int64_t appended_at = append_time if appended else -1
    if not 0 <= row < row_end <= rows.count or not 0 <= magic <= 1:
        raise ValueError("no such rows, or no such magic")
    with nogil:
        while i < row_end:
            reason = offset_of(rows, i, row, base_offset, &offset)
            if reason == REASON_NONE:
                reason = field_of(&rows.key, rows.has_key, row_of(rows, i), &key, &key_size)
            if reason == REASON_NONE:
                reason = field_of(&rows.value, rows.has_value, row_of(rows, i), &value, &value_size)
            if reason != REASON_NONE:
                break
            size = (overhead + (key_size if key_size > 0 else 0)
                    + (value_size if value_size > 0 else 0))
            if i > row and total + size > size_target:
                break
            if total + size > INT32_MAX - overhead:
                reason = REASON_SIZE_TOO_LARGE
                break
            if i == row:
                first = offset
            timestamp = appended_at if appended else timestamp_of(rows, i)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            last = offset
            total += size
            i += 1
    if reason != REASON_NONE:
        return i, first, last, max_timestamp, reason
    PyByteArray_Resize(out, at + total)
    p = <uint8_t*>PyByteArray_AS_STRING(out) + at
    with nogil:
        for i in range(row, i):
            offset_of(rows, i, row, base_offset, &offset)
            field_of(&rows.key, rows.has_key, row_of(rows, i), &key, &key_size)
            field_of(&rows.value, rows.has_value, row_of(rows, i), &value, &value_size)
            start = p
            p = put64(p, offset - first if relative else offset)
            p += 8  # size and CRC, when the end is known
            p[0] = <uint8_t>magic
            p[1] = <uint8_t>attributes
            p += 2
            if magic == 1:
                p = put64(p, appended_at if appended else timestamp_of(rows, i))
            p = put32(p, key_size)
            if key_size > 0:
                memcpy(p, key, key_size)
                p += key_size
            p = put32(p, value_size)
            if value_size > 0:
                memcpy(p, value, value_size)
                p += value_size
            put32(start + SIZE_AT, p - start - LOG_OVERHEAD)
            put32(start + MESSAGE_CRC_AT,
                  stratalog_crc32(0, start + MESSAGE_CRC_FROM, p - start - MESSAGE_CRC_FROM))
        i += 1
    return i, first, last, max_timestamp, reason


def restamp(uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit,
            int64_t next_offset, int32_t leader_epoch):
    """Give the batches of ``data[position:limit]`` the offsets from ``next_offset`` on, and a leader
    epoch, in place: both lie outside the CRC. Whole magic 2 batches only; where another thing
    comes, or the region ends badly, it stops there and answers why.

    Answers (position reached, ending, reason, offset after the last batch).
    """
    cdef Cursor base = region_start(data, position, limit)
    cdef uint8_t* p
    cdef Cursor end = base + limit
    cdef int ending, reason
    cdef int64_t delta
    cdef Header h
    p = <uint8_t*>base + position
    with nogil:
        while True:
            ending = parse_header(p, end, 0x7FFFFFFF, &h, &reason)
            if ending != GOES_ON:
                break
            delta = h.last_offset - h.base_offset
            if h.magic != 2:
                reason = REASON_UNKNOWN_MAGIC
            elif next_offset < 0 or next_offset > INT64_MAX - delta - 1:
                reason = REASON_OFFSET_RANGE
            if reason != REASON_NONE:
                ending = ENDING_CORRUPT
                break
            put64(p + OFFSET_AT, next_offset)
            put32(p + LEADER_EPOCH_AT, leader_epoch)
            next_offset += delta + 1
            p += h.size
    return p - base, ending, reason, next_offset
