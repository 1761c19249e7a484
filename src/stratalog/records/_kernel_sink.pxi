# Columns under construction: where decoded records are put.

cdef struct Variable:  # a binary column: offsets and bytes, or 16-byte views
    Block offsets
    Block data
    Block valid
    int64_t used
    int64_t nulls


cdef struct Sink:
    int want
    bint views
    int32_t buffer_index  # views: which of the consumer's buffers this payload is …
    Cursor buffer_start  # … and where it starts
    int64_t rows
    int64_t timestamp_nulls
    int64_t header_rows
    int64_t tombstones  # that were left out
    Block offset
    Block timestamp
    Block timestamp_valid
    Block timestamp_ms
    Block timestamp_type
    Variable key
    Variable value
    Block header_ends  # where the headers of each record end
    Variable header_key
    Variable header_value
    Block position
    Block base_offset
    Block producer_id
    Block producer_epoch
    Block sequence
    Block leader_epoch
    Block codec
    Block is_control
    Block is_transactional


cdef struct Mark:  # how far the sink was filled, to go back there
    int64_t rows
    int64_t timestamp_nulls
    int64_t header_rows
    int64_t tombstones
    int64_t key_used
    int64_t key_nulls
    int64_t value_used
    int64_t value_nulls
    int64_t header_key_used
    int64_t header_value_used
    int64_t header_value_nulls


cdef struct Bounds:
    int64_t first  # offsets, both inclusive: the largest offset and timestamp are legal values
    int64_t last
    int64_t first_time
    int64_t last_time
    const int64_t* keep  # of these offsets, in order, only; NULL: of all
    int64_t keep_count
    int64_t keep_at  # where the next batch is looked for first
    bint without_tombstones


cdef Mark mark(const Sink* s) noexcept nogil:
    cdef Mark m
    m.rows = s.rows
    m.timestamp_nulls = s.timestamp_nulls
    m.header_rows = s.header_rows
    m.tombstones = s.tombstones
    m.key_used = s.key.used
    m.key_nulls = s.key.nulls
    m.value_used = s.value.used
    m.value_nulls = s.value.nulls
    m.header_key_used = s.header_key.used
    m.header_value_used = s.header_value.used
    m.header_value_nulls = s.header_value.nulls
    return m


cdef void rewind(Sink* s, const Mark* m) noexcept nogil:
    s.rows = m.rows
    s.timestamp_nulls = m.timestamp_nulls
    s.header_rows = m.header_rows
    s.tombstones = m.tombstones
    s.key.used = m.key_used
    s.key.nulls = m.key_nulls
    s.value.used = m.value_used
    s.value.nulls = m.value_nulls
    s.header_key.used = m.header_key_used
    s.header_value.used = m.header_value_used
    s.header_value.nulls = m.header_value_nulls


cdef inline int64_t used_bytes(const Sink* s) noexcept nogil:
    return s.key.used + s.value.used + s.header_key.used + s.header_value.used


cdef void put_bits(uint8_t* bitmap, int64_t row, int64_t end, bint value) noexcept nogil:
    # Rows come in order: a byte is cleared as its first bit is written.
    while row < end:
        if row & 7 == 0:
            if end - row >= 8:
                bitmap[row >> 3] = 0xFF if value else 0
                row += 8
                continue
            bitmap[row >> 3] = 0
        if value:
            bitmap[row >> 3] |= <uint8_t>(1 << (row & 7))
        else:
            bitmap[row >> 3] &= <uint8_t>~(1 << (row & 7))
        row += 1


cdef void put_validity(uint8_t* bitmap, int64_t row, const int64_t* sizes, int64_t count,
                       int64_t* nulls) noexcept nogil:
    """A bitmap is begun with the first null; until then nobody looks at it."""
    cdef int64_t i, fresh = 0
    for i in range(count):
        fresh += sizes[i] < 0
    if nulls[0] == 0:
        if fresh == 0:
            return
        put_bits(bitmap, 0, row, True)
    nulls[0] += fresh
    for i in range(count):
        put_bits(bitmap, row + i, row + i + 1, sizes[i] >= 0)


cdef bint reserve_variable(Variable* v, bint views, int64_t rows, int64_t payload) noexcept nogil:
    if not grow(&v.valid, (rows >> 3) + 1):
        return False
    if views:
        return grow(&v.offsets, rows * 16)
    return grow(&v.offsets, (rows + 1) * 4) and grow(&v.data, v.used + payload)


cdef bint reserve(Sink* s, int64_t more, int64_t payload) noexcept nogil:
    """Room for ``more`` rows whose keys and values lie within ``payload`` bytes: the loops that
    follow write without asking again. Only headers, which are many to a record, grow on the way."""
    cdef int64_t rows = s.rows + more
    cdef int want = s.want
    if want & (WANT_OFFSET | WANT_SEQUENCE) and not grow(&s.offset, rows * 8):
        return False
    if want & WANT_TIMESTAMP and not (
            grow(&s.timestamp, rows * 8) and grow(&s.timestamp_valid, (rows >> 3) + 1)):
        return False
    if want & WANT_TIMESTAMP_MS and not grow(&s.timestamp_ms, rows * 8):
        return False
    if want & WANT_TIMESTAMP_TYPE and not grow(&s.timestamp_type, rows * 4):
        return False
    if want & WANT_KEY and not reserve_variable(&s.key, s.views, rows, payload):
        return False
    if want & WANT_VALUE and not reserve_variable(&s.value, s.views, rows, payload):
        return False
    if want & WANT_HEADERS and not grow(&s.header_ends, (rows + 1) * 4):
        return False
    if want & WANT_SEQUENCE and not grow(&s.sequence, rows * 4):
        return False
    if want & WANT_POSITION and not grow(&s.position, rows * 8):
        return False
    if want & WANT_BASE_OFFSET and not grow(&s.base_offset, rows * 8):
        return False
    if want & WANT_PRODUCER_ID and not grow(&s.producer_id, rows * 8):
        return False
    if want & WANT_PRODUCER_EPOCH and not grow(&s.producer_epoch, rows * 2):
        return False
    if want & WANT_LEADER_EPOCH and not grow(&s.leader_epoch, rows * 4):
        return False
    if want & WANT_CODEC and not grow(&s.codec, rows):
        return False
    if want & WANT_IS_CONTROL and not grow(&s.is_control, (rows >> 3) + 1):
        return False
    if want & WANT_IS_TRANSACTIONAL and not grow(&s.is_transactional, (rows >> 3) + 1):
        return False
    return True


cdef inline void put_view(uint8_t* view, const Sink* s, Cursor data, int64_t size) noexcept nogil:
    # view := int32 size, bytes{12}   (size <= 12)
    #       | int32 size, bytes{4} prefix, int32 buffer, int32 position
    cdef int32_t part
    if size <= 12:
        memset(view, 0, 16)
        if size <= 0:
            return
        part = <int32_t>size
        memcpy(view, &part, 4)
        memcpy(view + 4, data, size)
        return
    part = <int32_t>size
    memcpy(view, &part, 4)
    memcpy(view + 4, data, 4)
    part = s.buffer_index
    memcpy(view + 8, &part, 4)
    part = <int32_t>(data - s.buffer_start)
    memcpy(view + 12, &part, 4)


cdef enum:
    CHUNK = 256
    SHORT_COPY = 32


cdef struct Chunk:  # records between parser and columns: few enough to stay in the cache
    int64_t count
    Cursor limit  # behind the payload that keys and values lie in
    int64_t offset[CHUNK]
    int64_t timestamp[CHUNK]
    Cursor key[CHUNK]
    int64_t key_size[CHUNK]
    Cursor value[CHUNK]
    int64_t value_size[CHUNK]
    int32_t header_end[CHUNK]


cdef inline void copy_field(uint8_t* out, Cursor data, int64_t size, Cursor limit) noexcept nogil:
    # Most fields are short: whole steps that overshoot into slack beat a call of memcpy.
    cdef int64_t i = 0
    if size > 8 * SHORT_COPY or limit - data < size + SHORT_COPY:
        memcpy(out, data, size)
        return
    while True:
        memcpy(out + i, data + i, SHORT_COPY)
        i += SHORT_COPY
        if i >= size:
            return


cdef void put_variable(Sink* s, Variable* v, Cursor* fields, const int64_t* sizes, int64_t count,
                       Cursor limit) noexcept nogil:
    cdef int64_t i
    cdef int64_t used = v.used
    cdef uint8_t* data = v.data.data
    cdef uint8_t* views = v.offsets.data + s.rows * 16
    cdef int32_t* ends = (<int32_t*>v.offsets.data) + s.rows + 1
    put_validity(v.valid.data, s.rows, sizes, count, &v.nulls)
    if s.views:
        for i in range(count):
            put_view(views + 16 * i, s, fields[i], sizes[i])
        return
    for i in range(count):
        if sizes[i] > 0:
            copy_field(data + used, fields[i], sizes[i], limit)
            used += sizes[i]
        ends[i] = <int32_t>used
    v.used = used


cdef void put_timestamps(Sink* s, const int64_t* timestamps, int64_t count) noexcept nogil:
    cdef int64_t i
    cdef int64_t* out = (<int64_t*>s.timestamp.data) + s.rows
    cdef int64_t fits[CHUNK]
    cdef bint all_fit = True
    for i in range(count):
        all_fit &= (-MICROSECONDS_MAX_MS <= timestamps[i]) & (timestamps[i] <= MICROSECONDS_MAX_MS)
    if all_fit and s.timestamp_nulls == 0:
        for i in range(count):
            out[i] = timestamps[i] * 1000
        return
    for i in range(count):
        fits[i] = 0 if -MICROSECONDS_MAX_MS <= timestamps[i] <= MICROSECONDS_MAX_MS else -1
        out[i] = timestamps[i] * 1000 if fits[i] == 0 else 0
    put_validity(s.timestamp_valid.data, s.rows, fits, count, &s.timestamp_nulls)


cdef void put_chunk(Sink* s, Chunk* c) noexcept nogil:
    """The chunk's records into the columns that differ from record to record; room is reserved."""
    cdef int want = s.want
    if c.count == 0:
        return
    if want & (WANT_OFFSET | WANT_SEQUENCE):
        memcpy((<int64_t*>s.offset.data) + s.rows, c.offset, c.count * 8)
    if want & WANT_TIMESTAMP:
        put_timestamps(s, c.timestamp, c.count)
    if want & WANT_TIMESTAMP_MS:
        memcpy((<int64_t*>s.timestamp_ms.data) + s.rows, c.timestamp, c.count * 8)
    if want & WANT_KEY:
        put_variable(s, &s.key, c.key, c.key_size, c.count, c.limit)
    if want & WANT_VALUE:
        put_variable(s, &s.value, c.value, c.value_size, c.count, c.limit)
    if want & WANT_HEADERS:
        memcpy((<int32_t*>s.header_ends.data) + s.rows + 1, c.header_end, c.count * 4)
    s.rows += c.count
    c.count = 0


cdef inline void put_record(Chunk* c, const Sink* s, int64_t offset, int64_t timestamp, Cursor key,
                            int64_t key_size, Cursor value, int64_t value_size) noexcept nogil:
    cdef int64_t i = c.count
    c.offset[i] = offset
    c.timestamp[i] = timestamp
    c.key[i] = key
    c.key_size[i] = key_size
    c.value[i] = value
    c.value_size[i] = value_size
    c.header_end[i] = <int32_t>s.header_rows
    c.count = i + 1


cdef void put_batch_columns(Sink* s, int64_t row, const Header* h, int64_t position) noexcept nogil:
    """The columns that are the same for every record of a batch, for the rows from ``row`` on."""
    cdef int64_t i
    cdef int64_t end = s.rows
    cdef int timestamp_type = (
        TYPE_NONE if h.magic == 0
        else TYPE_APPEND_TIME if h.attributes & APPEND_TIME_MASK else TYPE_CREATE_TIME)
    if s.want & WANT_TIMESTAMP_TYPE:
        for i in range(row, end):
            (<int32_t*>s.timestamp_type.data)[i] = timestamp_type
    if s.want & WANT_POSITION:
        for i in range(row, end):
            (<int64_t*>s.position.data)[i] = position
    if s.want & WANT_BASE_OFFSET:
        for i in range(row, end):
            (<int64_t*>s.base_offset.data)[i] = h.base_offset
    if s.want & WANT_PRODUCER_ID:
        for i in range(row, end):
            (<int64_t*>s.producer_id.data)[i] = h.producer_id
    if s.want & WANT_PRODUCER_EPOCH:
        for i in range(row, end):
            (<int16_t*>s.producer_epoch.data)[i] = <int16_t>h.producer_epoch
    if s.want & WANT_LEADER_EPOCH:
        for i in range(row, end):
            (<int32_t*>s.leader_epoch.data)[i] = h.leader_epoch
    if s.want & WANT_SEQUENCE:  # wraps at 2**31; needs the offsets, which reserve() sees to
        for i in range(row, end):
            (<int32_t*>s.sequence.data)[i] = -1 if h.base_sequence < 0 else <int32_t>(
                (h.base_sequence + ((<int64_t*>s.offset.data)[i] - h.base_offset)) & INT32_MAX)
    if s.want & WANT_CODEC:
        for i in range(row, end):
            (<int8_t*>s.codec.data)[i] = <int8_t>h.codec
    if s.want & WANT_IS_CONTROL:
        put_bits(s.is_control.data, row, end, h.magic == 2 and h.attributes & CONTROL_MASK != 0)
    if s.want & WANT_IS_TRANSACTIONAL:
        put_bits(s.is_transactional.data, row, end,
                  h.magic == 2 and h.attributes & TRANSACTIONAL_MASK != 0)


# Header keys are text: bytes that are not UTF-8 become U+FFFD, as Kafka's own reader does.

cdef int utf8_sequence(Cursor p, Cursor limit, int* bad) noexcept nogil:
    """The length of the sequence at ``p``; where it is not legal, ``bad`` and the length of its
    longest legal start (at least one byte), which one U+FFFD stands for."""
    cdef uint8_t first = p[0]
    cdef uint8_t low = 0x80, high = 0xBF
    cdef int size, i
    bad[0] = 0
    if first < 0x80:
        return 1
    if 0xC2 <= first <= 0xDF:
        size = 2
    elif 0xE0 <= first <= 0xEF:
        size = 3
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        size = 4
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        bad[0] = 1
        return 1
    for i in range(1, size):
        if p + i >= limit or p[i] < low or p[i] > high:
            bad[0] = 1
            return i
        low = 0x80
        high = 0xBF
    return size


cdef bint put_text(Variable* v, Cursor data, int64_t size) noexcept nogil:
    cdef Cursor limit = data + size
    cdef uint8_t* out
    cdef int step, bad
    if not grow(&v.data, v.used + 3 * size):  # one wrong byte becomes three
        return False
    out = v.data.data + v.used
    while data < limit:
        step = utf8_sequence(data, limit, &bad)
        if bad:
            out[0] = 0xEF
            out[1] = 0xBF
            out[2] = 0xBD
            out += 3
        else:
            memcpy(out, data, step)
            out += step
        data += step
    v.used = out - v.data.data
    return True


cdef Cursor take_headers(Sink* s, Cursor p, Cursor limit, bint keep, int* reason) noexcept nogil:
    # headers := varint count, (varint key size, key, varint value size (-1 null), value){count}
    cdef int64_t count, key_size, value_size, i, row
    cdef Cursor key
    cdef Cursor value
    p = take_varint(p, limit, &count)
    if p == NULL:
        reason[0] = REASON_VARINT
        return NULL
    if count == 0:
        return p
    if count < 0 or count > (limit - p) // 2:
        reason[0] = REASON_HEADER_COUNT
        return NULL
    for i in range(count):
        p = take_field(p, limit, &key, &key_size, reason)
        if p == NULL:
            return NULL
        if key_size < 0:
            reason[0] = REASON_HEADER_KEY_NULL
            return NULL
        p = take_field(p, limit, &value, &value_size, reason)
        if p == NULL:
            return NULL
        if not keep:
            continue
        row = s.header_rows
        if not (grow(&s.header_key.offsets, (row + 2) * 4)
                and grow(&s.header_value.offsets, (row + 2) * 4)
                and grow(&s.header_value.valid, ((row + 1) >> 3) + 1)
                and grow(&s.header_value.data,
                         s.header_value.used + (value_size if value_size > 0 else 0))
                and put_text(&s.header_key, key, key_size)):
            reason[0] = NO_MEMORY
            return NULL
        put_validity(s.header_value.valid.data, row, &value_size, 1, &s.header_value.nulls)
        if value_size > 0:
            memcpy(s.header_value.data.data + s.header_value.used, value, value_size)
            s.header_value.used += value_size
        (<int32_t*>s.header_key.offsets.data)[row + 1] = <int32_t>s.header_key.used
        (<int32_t*>s.header_value.offsets.data)[row + 1] = <int32_t>s.header_value.used
        s.header_rows = row + 1
    return p
