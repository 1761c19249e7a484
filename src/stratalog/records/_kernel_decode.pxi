# Records, messages and message sets into columns.

cdef inline bint within(const Bounds* bounds, int64_t offset, int64_t timestamp) noexcept nogil:
    return (bounds.first <= offset <= bounds.last
            and bounds.first_time <= timestamp <= bounds.last_time)


cdef int64_t seek_keep(const Bounds* bounds, int64_t at, int64_t offset) noexcept nogil:
    """The first of the offsets to keep that is not below ``offset``. Most often it is near ``at``."""
    cdef const int64_t* keep = bounds.keep
    cdef int64_t low, middle, step = 1, high = at
    if at > 0 and keep[at - 1] >= offset:
        high = 0
    low = high
    while high < bounds.keep_count and keep[high] < offset:
        low = high + 1
        high += step
        step *= 2
    if high > bounds.keep_count:
        high = bounds.keep_count
    while low < high:
        middle = low + (high - low) // 2
        if keep[middle] < offset:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline bint is_kept(Sink* s, const Bounds* bounds, int64_t* at, int64_t offset, int64_t timestamp,
                         int64_t value_size) noexcept nogil:
    """Whether a record is wanted. ``at`` is where its offset is looked for among those to keep."""
    if not within(bounds, offset, timestamp):
        return False
    if bounds.keep == NULL:
        return True
    at[0] = seek_keep(bounds, at[0], offset)
    if at[0] == bounds.keep_count or bounds.keep[at[0]] != offset:
        return False
    if value_size < 0 and bounds.without_tombstones:
        s.tombstones += 1
        return False
    return True


cdef int decode_records(Sink* s, const Header* h, Cursor p, Cursor limit,
                        const Bounds* bounds) noexcept nogil:
    """record := varint length, int8 attributes, varlong timestamp delta, varint offset delta,
    field key, field value, headers"""
    cdef Cursor end
    cdef Cursor key
    cdef Cursor value
    cdef int64_t length, timestamp, delta, key_size, value_size, offset, i
    cdef int64_t delta_max = h.last_offset - h.base_offset
    cdef int64_t at = bounds.keep_at
    cdef bint append_time = h.attributes & APPEND_TIME_MASK != 0
    cdef bint keep
    cdef bint keep_headers = s.want & WANT_HEADERS != 0
    cdef int reason = REASON_NONE
    cdef Chunk chunk
    if h.count * RECORD_SIZE_MIN > limit - p:
        return REASON_RECORD_COUNT_RANGE
    if not reserve(s, h.count, limit - p):
        return NO_MEMORY
    chunk.count = 0
    chunk.limit = limit
    for i in range(h.count):
        p = take_varint(p, limit, &length)
        if p == NULL:
            return REASON_VARINT
        if length < 1 or length > limit - p:
            return REASON_RECORD_LENGTH
        end = p + length
        p = take_varlong(p + 1, end, &timestamp)
        if p == NULL:
            return REASON_VARINT
        p = take_varint(p, end, &delta)
        if p == NULL:
            return REASON_VARINT
        p = take_field(p, end, &key, &key_size, &reason)
        if p == NULL:
            return reason
        p = take_field(p, end, &value, &value_size, &reason)
        if p == NULL:
            return reason
        if delta < 0 or delta > delta_max:
            return REASON_OFFSET_DELTA_RANGE
        offset = h.base_offset + delta
        timestamp = h.max_timestamp if append_time else wrapping_add(h.base_timestamp, timestamp)
        keep = is_kept(s, bounds, &at, offset, timestamp, value_size)
        p = take_headers(s, p, end, keep and keep_headers, &reason)
        if p == NULL:
            return reason
        if p != end:
            return REASON_RECORD_TRAILING_BYTES
        if keep:
            put_record(&chunk, s, offset, timestamp, key, key_size, value, value_size)
            if chunk.count == CHUNK:
                put_chunk(s, &chunk)
    put_chunk(s, &chunk)
    return REASON_NONE if p == limit else REASON_BATCH_TRAILING_BYTES


cdef int decode_message(Sink* s, Chunk* chunk, Cursor p, Cursor limit, int64_t offset,
                        int64_t timestamp, const Bounds* bounds) noexcept nogil:
    """body := int32 key size (-1 null), key, int32 value size (-1 null), value"""
    cdef int64_t key_size, value_size
    cdef int64_t at = bounds.keep_at
    cdef Cursor key
    if limit - p < 8:
        return REASON_FIELD_LENGTH
    key_size = get32(p)
    key = p + 4
    if key_size < -1 or key_size > limit - p - 8:
        return REASON_FIELD_LENGTH
    p = key + (key_size if key_size > 0 else 0)
    value_size = get32(p)
    p += 4
    if value_size < -1 or value_size > limit - p:
        return REASON_FIELD_LENGTH
    if p + (value_size if value_size > 0 else 0) != limit:
        return REASON_RECORD_TRAILING_BYTES
    if is_kept(s, bounds, &at, offset, timestamp, value_size):
        put_record(chunk, s, offset, timestamp, key, key_size, p, value_size)
        if chunk.count == CHUNK:
            put_chunk(s, chunk)
    return REASON_NONE


cdef int decode_plain_message(Sink* s, const Header* h, const Bounds* bounds) noexcept nogil:
    cdef Chunk chunk
    cdef int reason
    chunk.count = 0
    chunk.limit = h.payload + h.payload_size
    if not reserve(s, 1, h.payload_size):
        return NO_MEMORY
    reason = decode_message(s, &chunk, h.payload, chunk.limit, h.base_offset, h.base_timestamp,
                            bounds)
    put_chunk(s, &chunk)
    return reason


cdef int inner_offsets(Cursor p, Cursor limit, int64_t* first, int64_t* last,
                       int64_t* messages) noexcept nogil:
    """message set := (int64 offset, int32 size, message{size})*, whole messages only"""
    cdef int64_t size
    messages[0] = 0
    while p < limit:
        if limit - p < LOG_OVERHEAD + MESSAGE_SIZE_MIN_V0:
            return REASON_BATCH_TRAILING_BYTES
        size = get32(p + SIZE_AT)
        if size < MESSAGE_SIZE_MIN_V0 or size > limit - p - LOG_OVERHEAD:
            return REASON_RECORD_LENGTH
        last[0] = get64(p + OFFSET_AT)
        if messages[0] == 0:
            first[0] = last[0]
        messages[0] += 1
        p += LOG_OVERHEAD + size
    return REASON_NONE if messages[0] else REASON_EMPTY_WRAPPER


cdef int place_wrapper(Header* wrapper, Cursor p, Cursor limit, int flags, int64_t expected,
                       int64_t* last, int64_t* shift) noexcept nogil:
    """Find the offsets and the count of the messages inside a wrapper, for its header. ``last`` is the last
    offset as it stands inside, ``shift`` what must be added to each of them."""
    cdef int64_t first = 0, messages = 0
    cdef int reason
    last[0] = 0
    shift[0] = 0
    reason = inner_offsets(p, limit, &first, last, &messages)
    if reason != REASON_NONE:
        return reason
    if wrapper.magic == 1:
        if wrapper.last_offset != 0:  # some producers left it 0: the inner offsets then stand
            if wrapper.last_offset < last[0]:
                return REASON_WRAPPER_OFFSET
            shift[0] = wrapping_subtract(wrapper.last_offset, last[0])  # checked below: may be negative
    elif wrapper.last_offset != 0 and wrapper.last_offset != last[0] and flags & CHECK_ORDER:
        return REASON_WRAPPER_OFFSET
    if last[0] < 0 or first < 0 or first > last[0]:
        return REASON_OFFSET_RANGE
    wrapper.base_offset = first + shift[0]
    wrapper.last_offset = last[0] + shift[0]  # where the wrapper's own was 0, it is known only now
    wrapper.count = messages
    if expected >= 0:
        if flags & CHECK_ORDER and wrapper.base_offset < expected:
            return REASON_OFFSET_ORDER
        if flags & CHECK_CONTIGUOUS and wrapper.base_offset != expected:
            return REASON_OFFSET_GAP
    return REASON_NONE


cdef int decode_message_set(Sink* s, Header* wrapper, Cursor p, Cursor limit, int flags,
                            int64_t expected, const Bounds* bounds) noexcept nogil:
    """The messages inside a wrapper. Magic 0 keeps absolute offsets; magic 1 counts from zero and
    the wrapper has the last one's offset. Where the wrapper has append time, so have they all."""
    cdef Header inner
    cdef Chunk chunk
    cdef int64_t last, shift, offset, timestamp
    cdef int reason = place_wrapper(wrapper, p, limit, flags, expected, &last, &shift)
    if reason != REASON_NONE:
        return reason
    if not reserve(s, wrapper.count, limit - p):
        return NO_MEMORY
    chunk.count = 0
    chunk.limit = limit
    while p < limit:
        inner.start = p
        inner.size = get32(p + SIZE_AT) + LOG_OVERHEAD
        inner.magic = p[MAGIC_AT]
        if inner.magic > 1:
            return REASON_UNKNOWN_MAGIC
        if inner.magic == 1 and inner.size < LOG_OVERHEAD + MESSAGE_SIZE_MIN_V1:
            return REASON_SIZE_TOO_SMALL
        if p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
            return REASON_NESTED_COMPRESSION
        inner.crc = <uint32_t>get32(p + MESSAGE_CRC_AT)
        if flags & CHECK_CRC and not crc_matches(&inner):
            return REASON_CRC_MISMATCH
        offset = get64(p + OFFSET_AT)
        if offset < 0 or offset > last:
            return REASON_OFFSET_RANGE
        timestamp = -1
        if wrapper.magic == 1:
            if wrapper.attributes & APPEND_TIME_MASK:
                timestamp = wrapper.max_timestamp
            elif inner.magic == 1:
                timestamp = get64(p + MESSAGE_TIMESTAMP_AT)
        reason = decode_message(
            s, &chunk, p + (MESSAGE_KEY_AT_V1 if inner.magic == 1 else MESSAGE_KEY_AT_V0),
            p + inner.size, offset + shift, timestamp, bounds)
        if reason != REASON_NONE:
            return reason
        p += inner.size
    put_chunk(s, &chunk)
    return REASON_NONE


cdef inline bint outside(const Bounds* bounds, const Header* h) noexcept nogil:
    """Whether the header alone tells that no record of this batch lies within the bounds."""
    # What a wrapper holds, only its contents tell: a CRC covers them, and none its own offset.
    if h.last_offset < bounds.first and h.count >= 0:
        return True
    if h.base_offset > bounds.last:  # -1 for a wrapper: not known here
        return True
    if h.max_timestamp < bounds.first_time:
        return True
    # The earliest timestamp is not in the header, except where all are the same.
    return h.attributes & APPEND_TIME_MASK != 0 and h.max_timestamp > bounds.last_time


cdef int decode_entry(Sink* s, Header* h, Cursor payload, Cursor limit, int flags,
                      int64_t expected, int64_t position, const Bounds* bounds) noexcept nogil:
    """One batch, message or wrapper whose (decompressed) payload is given: all of it or nothing."""
    cdef Mark before = mark(s)
    cdef int reason
    if h.magic == 2:
        reason = decode_records(s, h, payload, limit, bounds)
    elif h.codec == CODEC_NONE:
        reason = decode_plain_message(s, h, bounds)
    else:
        reason = decode_message_set(s, h, payload, limit, flags, expected, bounds)
    if reason != REASON_NONE:
        rewind(s, &before)
        return reason
    put_batch_columns(s, before.rows, h, position)
    return REASON_NONE
