# What is left of a batch or wrapper that lost records. Offsets, producer, flags and leader epoch stay; base
# timestamp, largest timestamp, count and delete horizon are those that Kafka's cleaner gives it.

cdef enum:
    RECORD_GROWTH_MAX = 11  # bytes that a new timestamp delta may add to a record, with its length
    MESSAGE_GROWTH_MAX = 8  # bytes that the timestamp of magic 1 adds to a message of magic 0


cdef struct Rebuilding:
    const uint8_t* keep  # a byte for each record of the batch: whether it is kept
    int64_t kept
    int64_t horizon  # the delete horizon to be set, -1: none
    Header new


cdef void start_rebuilding(Rebuilding* r, const Header* old, const uint8_t* keep, int64_t kept,
                           int64_t horizon) noexcept nogil:
    r.keep = keep
    r.kept = kept
    r.horizon = horizon
    r.new = old[0]
    r.new.count = kept
    if not old.attributes & APPEND_TIME_MASK:
        r.new.max_timestamp = -1


cdef inline void see_timestamp(Rebuilding* r, int64_t timestamp) noexcept nogil:
    if not r.new.attributes & APPEND_TIME_MASK and timestamp > r.new.max_timestamp:
        r.new.max_timestamp = timestamp


cdef inline uint8_t* put_kept_record(uint8_t* q, const KeyedRecord* record, int64_t timestamp_delta,
                                     int64_t offset_delta) noexcept nogil:
    cdef int64_t rest = record.end - record.rest
    q = put_number(q, 1 + number_size(timestamp_delta) + number_size(offset_delta) + rest)
    q[0] = 0  # attributes
    q = put_number(q + 1, timestamp_delta)
    q = put_number(q, offset_delta)
    memcpy(q, record.rest, rest)
    return q + rest


cdef int64_t rebuild_records(Rebuilding* r, Header* old, Cursor payload, Cursor limit, Block* out,
                             int64_t at) noexcept nogil:
    """Write the records that are kept to ``out`` from ``at`` on. Returns their size; -1: no memory."""
    cdef KeyedReader reader
    cdef KeyedRecord record
    cdef Header* new = &r.new
    cdef int64_t row = -1
    cdef uint8_t* q
    cdef bint has_base = True
    if not grow(out, at + (limit - payload) + RECORD_GROWTH_MAX * r.kept):
        return -1
    q = out.data + at
    new.attributes = old.attributes & (CODEC_MASK | APPEND_TIME_MASK | TRANSACTIONAL_MASK | CONTROL_MASK)
    if r.horizon >= 0:
        new.base_timestamp = r.horizon
        new.attributes |= DELETE_HORIZON_MASK
    elif old.attributes & DELETE_HORIZON_MASK and old.base_timestamp >= 0:
        new.attributes |= DELETE_HORIZON_MASK
    else:
        has_base = False
    open_reader(&reader, old, payload, limit, 0, -1)
    while next_record(&reader, &record):
        row += 1
        if not r.keep[row]:
            continue
        if not has_base:
            new.base_timestamp = record.timestamp
            has_base = True
        see_timestamp(r, record.timestamp)
        if new.base_timestamp == old.base_timestamp and not old.attributes & APPEND_TIME_MASK:
            memcpy(q, record.start, record.end - record.start)
            q += record.end - record.start
        else:
            q = put_kept_record(q, &record, wrapping_subtract(record.timestamp, new.base_timestamp),
                                record.offset - old.base_offset)
    return q - (out.data + at)


cdef uint8_t* put_message(uint8_t* q, const KeyedRecord* record, const Header* wrapper) noexcept nogil:
    """Write a message in the wrapper's magic: older brokers mixed them up (KAFKA-4298)."""
    cdef int64_t head = MESSAGE_KEY_AT_V1 if wrapper.magic == 1 else MESSAGE_KEY_AT_V0
    cdef int64_t size = head + (record.end - record.rest)
    put32(q + SIZE_AT, size - LOG_OVERHEAD)
    q[MAGIC_AT] = <uint8_t>wrapper.magic
    q[MESSAGE_ATTRIBUTES_AT] = 0
    if wrapper.magic == 1:
        put64(q + MESSAGE_TIMESTAMP_AT, record.timestamp)
    memcpy(q + head, record.rest, record.end - record.rest)
    put32(q + MESSAGE_CRC_AT, stratalog_crc32(0, q + MESSAGE_CRC_FROM, size - MESSAGE_CRC_FROM))
    return q + size


cdef int64_t rebuild_messages(Rebuilding* r, Header* old, Cursor payload, Cursor limit,
                              Block* out) noexcept nogil:
    """Write the messages of a wrapper that are kept to ``out``. Returns their size; -1: no memory."""
    cdef KeyedReader reader
    cdef KeyedRecord record
    cdef int64_t row = -1
    cdef uint8_t* q
    cdef uint8_t* message
    r.new.base_offset = -1
    r.new.attributes = old.attributes & (CODEC_MASK | (APPEND_TIME_MASK if old.magic == 1 else 0))
    if not grow(out, (limit - payload) + MESSAGE_GROWTH_MAX * r.kept):
        return -1
    q = out.data
    open_reader(&reader, old, payload, limit, 0, -1)
    while next_record(&reader, &record):
        row += 1
        if not r.keep[row]:
            continue
        if r.new.base_offset < 0:
            r.new.base_offset = record.offset
        r.new.last_offset = record.offset
        see_timestamp(r, record.timestamp)
        message = q
        if record.magic == old.magic:
            memcpy(q, record.start, record.end - record.start)
            q += record.end - record.start
        else:
            q = put_message(q, &record, old)
        put64(message + OFFSET_AT,
              record.offset - r.new.base_offset if old.magic == 1 else record.offset)
    return q - out.data
