# Records as a rewrite looks at them: where they lie, their key, and whether they have a value. Headers are
# not read: they are copied with the rest of the record.

cdef struct KeyedRecord:
    Cursor start
    Cursor rest  # from the key's size on: what does not depend on the batch's base timestamp
    Cursor end
    Cursor key
    int64_t key_size  # -1: null
    int64_t value_size
    int64_t offset
    int64_t timestamp
    int32_t magic


cdef struct KeyedReader:  # over the records of one batch, message or wrapper
    const Header* h
    Cursor p
    Cursor limit
    int64_t left
    int flags
    int64_t last  # of a wrapper: see place_wrapper()
    int64_t shift
    int reason


cdef int open_reader(KeyedReader* reader, Header* h, Cursor payload, Cursor limit, int flags,
                     int64_t expected) noexcept nogil:
    """Start on the (decompressed) ``payload`` of ``h``. Of a wrapper, the header gets to know its offsets and
    its count. A message that stands alone is its own payload, and its CRC was checked with its header."""
    reader.h = h
    reader.p = payload
    reader.limit = limit
    reader.flags = flags
    reader.last = h.last_offset
    reader.shift = 0
    reader.reason = REASON_NONE
    if h.magic == 2:
        if h.count * RECORD_SIZE_MIN > limit - payload:
            reader.reason = REASON_RECORD_COUNT_RANGE
    elif h.codec == CODEC_NONE:
        reader.p = h.start
        reader.limit = h.start + h.size
        reader.flags = flags & ~CHECK_CRC
    else:
        reader.reason = place_wrapper(h, payload, limit, flags, expected, &reader.last, &reader.shift)
    reader.left = h.count
    return reader.reason


cdef inline int read_record(KeyedReader* reader, KeyedRecord* record) noexcept nogil:
    """record := varint length, int8 attributes, varlong timestamp delta, varint offset delta, field key,
    field value, and headers"""
    cdef const Header* h = reader.h
    cdef int64_t length, timestamp, delta
    cdef Cursor value
    cdef Cursor p = take_varint(reader.p, reader.limit, &length)
    cdef int reason = REASON_NONE
    if p == NULL:
        return REASON_VARINT
    if length < 1 or length > reader.limit - p:
        return REASON_RECORD_LENGTH
    record.start = reader.p
    record.end = p + length
    reader.p = record.end
    p = take_varlong(p + 1, record.end, &timestamp)
    if p != NULL:
        p = take_varint(p, record.end, &delta)
    if p == NULL:
        return REASON_VARINT
    record.rest = p
    p = take_field(p, record.end, &record.key, &record.key_size, &reason)
    if p != NULL:
        p = take_field(p, record.end, &value, &record.value_size, &reason)
    if p == NULL:
        return reason
    if delta < 0 or delta > h.last_offset - h.base_offset:
        return REASON_OFFSET_DELTA_RANGE
    record.offset = h.base_offset + delta
    record.timestamp = (h.max_timestamp if h.attributes & APPEND_TIME_MASK
                        else wrapping_add(h.base_timestamp, timestamp))
    record.magic = 2
    return REASON_NONE


cdef int read_message(KeyedReader* reader, KeyedRecord* record) noexcept nogil:
    """message := int64 offset, int32 size, uint32 crc, int8 magic, int8 attributes, [int64 timestamp,]
    int32 key size, key, int32 value size, value   (parse_header() and place_wrapper() found that it fits)"""
    cdef const Header* h = reader.h
    cdef Cursor p = reader.p
    cdef Header message
    cdef int64_t offset = get64(p + OFFSET_AT)
    message.start = p
    message.size = get32(p + SIZE_AT) + LOG_OVERHEAD
    message.magic = p[MAGIC_AT]
    message.crc = <uint32_t>get32(p + MESSAGE_CRC_AT)
    record.start = p
    record.end = p + message.size
    reader.p = record.end
    if message.magic > 1:
        return REASON_UNKNOWN_MAGIC
    if message.magic == 1 and message.size < LOG_OVERHEAD + MESSAGE_SIZE_MIN_V1:
        return REASON_SIZE_TOO_SMALL
    if p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
        return REASON_NESTED_COMPRESSION
    if reader.flags & CHECK_CRC and not crc_matches(&message):
        return REASON_CRC_MISMATCH
    if offset < 0 or offset > reader.last:
        return REASON_OFFSET_RANGE
    record.offset = offset + reader.shift
    record.magic = message.magic
    record.timestamp = -1
    if h.magic == 1:
        if h.attributes & APPEND_TIME_MASK:
            record.timestamp = h.max_timestamp
        elif message.magic == 1:
            record.timestamp = get64(p + MESSAGE_TIMESTAMP_AT)
    record.rest = p + (MESSAGE_KEY_AT_V1 if message.magic == 1 else MESSAGE_KEY_AT_V0)
    record.key = record.rest + 4
    record.key_size = get32(record.rest)
    if record.key_size < -1 or record.key_size > record.end - record.key - 4:
        return REASON_FIELD_LENGTH
    p = record.key + (record.key_size if record.key_size > 0 else 0)
    record.value_size = get32(p)
    if record.value_size < -1 or record.value_size > record.end - p - 4:
        return REASON_FIELD_LENGTH
    if p + 4 + (record.value_size if record.value_size > 0 else 0) != record.end:
        return REASON_RECORD_TRAILING_BYTES
    return REASON_NONE


cdef inline bint next_record(KeyedReader* reader, KeyedRecord* record) noexcept nogil:
    """Read the next record; False after the last one, and if something is wrong: then ``reason`` says what."""
    if reader.left == 0:
        reader.reason = REASON_NONE if reader.p == reader.limit else REASON_BATCH_TRAILING_BYTES
        return False
    reader.left -= 1
    reader.reason = read_record(reader, record) if reader.h.magic == 2 else read_message(reader, record)
    return reader.reason == REASON_NONE
