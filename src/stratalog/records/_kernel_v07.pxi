# 0.7: entry := int32 length, int8 magic, [int8 attributes,] uint32 crc, payload

cdef int parse_entry_v07(Cursor start, Cursor limit, int64_t offset, Header* h,
                         int* reason) noexcept nogil:
    cdef int64_t remaining = limit - start
    cdef int64_t length
    cdef int crc_at
    reason[0] = REASON_NONE
    if remaining == 0:
        return ENDING_END
    if remaining < V07_LENGTH_SIZE + 1:
        reason[0] = REASON_ZERO_TAIL if all_zero(start, limit) else REASON_SHORT_TAIL
        return ENDING_INCOMPLETE
    length = get32(start)
    h.start = start
    h.magic = start[V07_MAGIC_AT]
    if length < V07_LENGTH_MIN_V0:
        if length == 0 and all_zero(start, limit):
            reason[0] = REASON_ZERO_TAIL
            return ENDING_INCOMPLETE
        reason[0] = REASON_SIZE_TOO_SMALL
        return ENDING_CORRUPT
    if h.magic > 1:
        reason[0] = REASON_UNKNOWN_MAGIC
        return ENDING_CORRUPT
    if h.magic == 1 and length < V07_LENGTH_MIN_V1:
        reason[0] = REASON_SIZE_TOO_SMALL
        return ENDING_CORRUPT
    if offset < 0:  # a base offset near the end of 64 bits, and a position
        reason[0] = REASON_OFFSET_RANGE
        return ENDING_CORRUPT
    h.size = length + V07_LENGTH_SIZE
    if h.size > remaining:
        reason[0] = REASON_SHORT_TAIL
        return ENDING_INCOMPLETE
    h.attributes = start[V07_ATTRIBUTES_AT] & V07_CODEC_MASK if h.magic == 1 else 0
    h.codec = h.attributes
    crc_at = V07_CRC_AT_V1 if h.magic == 1 else V07_CRC_AT_V0
    h.crc = <uint32_t>get32(start + crc_at)
    h.payload = start + crc_at + 4
    h.payload_size = start + h.size - h.payload
    h.base_offset = offset
    h.last_offset = offset
    h.base_timestamp = -1
    h.max_timestamp = -1
    h.count = 1 if h.codec == CODEC_NONE else -1
    h.producer_id = -1
    h.producer_epoch = -1
    h.base_sequence = -1
    h.leader_epoch = -1
    if h.codec > CODEC_SNAPPY:
        reason[0] = REASON_UNKNOWN_CODEC
        return ENDING_CORRUPT
    if h.codec and h.payload_size == 0:
        reason[0] = REASON_EMPTY_WRAPPER
        return ENDING_CORRUPT
    return GOES_ON


cdef inline bint crc_matches_v07(const Header* h) noexcept nogil:
    return stratalog_crc32(0, h.payload, h.payload_size) == h.crc


cdef int put_entry_v07(Sink* s, const Header* h, int64_t offset, const Bounds* bounds) noexcept nogil:
    # No key, no timestamp: the payload is the value.
    cdef Chunk chunk
    cdef int64_t at = bounds.keep_at
    if is_kept(s, bounds, &at, offset, -1, h.payload_size):
        if not reserve(s, 1, h.payload_size):
            return NO_MEMORY
        chunk.count = 0
        chunk.limit = h.payload + h.payload_size
        put_record(&chunk, s, offset, -1, NULL, -1, h.payload, h.payload_size)
        put_chunk(s, &chunk)
    return REASON_NONE


cdef int decode_entry_v07(Sink* s, const Header* h, Cursor p, Cursor limit, int flags,
                          const Bounds* bounds) noexcept nogil:
    """One 0.7 entry. Every message inside a compressed one has the wrapper's offset."""
    cdef Mark before = mark(s)
    cdef Header inner
    cdef int ending
    cdef int reason = REASON_NONE
    cdef int64_t row = s.rows
    cdef Header shown = h[0]
    if h.codec == CODEC_NONE:
        reason = put_entry_v07(s, h, h.base_offset, bounds)
    while h.codec != CODEC_NONE and reason == REASON_NONE:
        ending = parse_entry_v07(p, limit, h.base_offset, &inner, &reason)
        if ending == ENDING_END:
            break
        if ending == ENDING_INCOMPLETE:
            reason = REASON_BATCH_TRAILING_BYTES
        elif ending == GOES_ON:
            if inner.codec != CODEC_NONE:
                reason = REASON_NESTED_COMPRESSION
            elif flags & CHECK_CRC and not crc_matches_v07(&inner):
                reason = REASON_CRC_MISMATCH
            else:
                reason = put_entry_v07(s, &inner, h.base_offset, bounds)
                p += inner.size
    if reason != REASON_NONE:
        rewind(s, &before)
        return reason
    shown.magic = 0  # 0.7's magic 1 has no timestamp either
    put_batch_columns(s, row, &shown, h.base_offset)
    return REASON_NONE


def walk_v07(const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit,
             int64_t[::1] rows not None, int flags=0, int64_t base_offset=0):
    """walk() for 0.7 files. The offset of an entry is ``base_offset`` plus its position."""
    cdef Cursor base = region_start(data, position, limit)
    cdef Cursor p = base + position
    cdef Cursor end = base + limit
    cdef Py_ssize_t written = 0
    cdef Py_ssize_t capacity = rows.shape[0] // ROW_WIDTH
    cdef int ending, reason
    cdef Header h
    if capacity == 0:
        raise ValueError("no room for a header row")
    with nogil:
        while True:
            ending = parse_entry_v07(p, end, wrapping_add(base_offset, p - base), &h, &reason)
            if ending != GOES_ON:
                break
            if written == capacity:
                ending = ENDING_FULL
                break
            if flags & CHECK_CRC and not crc_matches_v07(&h):
                ending = ENDING_CORRUPT
                reason = REASON_CRC_MISMATCH
                break
            write_row(&rows[written * ROW_WIDTH], &h, base)
            written += 1
            p += h.size
    return written, p - base, ending, reason, min(<object>base_offset + (p - base), INT64_MAX)
