# Keys into partitions, as Kafka's Java producers choose them: murmur2, the sign cleared, modulo.

cdef inline uint32_t murmur2_of(const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t k
    cdef int64_t left = size
    while left >= 4:
        k = (<uint32_t>data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16
             | <uint32_t>data[3] << 24) * <uint32_t>0x5BD1E995
        h = (h * <uint32_t>0x5BD1E995) ^ ((k ^ k >> 24) * <uint32_t>0x5BD1E995)
        data += 4
        left -= 4
    if left:
        if left == 3:
            h ^= <uint32_t>data[2] << 16
        if left >= 2:
            h ^= <uint32_t>data[1] << 8
        h = (h ^ data[0]) * <uint32_t>0x5BD1E995
    h = (h ^ h >> 13) * <uint32_t>0x5BD1E995
    return h ^ h >> 15


def murmur2(const uint8_t[::1] data not None):
    """The 32-bit hash that Kafka's Java clients use, as an unsigned number."""
    if data.shape[0] == 0:
        return murmur2_of(<const uint8_t*>b"", 0)
    return murmur2_of(&data[0], data.shape[0])


def hash_keys(Rows rows not None, int32_t partitions, int32_t[::1] out not None):
    """Put the partition of every row's key into ``out``, -1 where it has none. Answers the reason where
    a key's bounds are wrong, else 0."""
    cdef int64_t row, size = 0
    cdef int reason = REASON_NONE
    cdef Cursor data = NULL
    if partitions < 1 or out.shape[0] < rows.count:
        raise ValueError("there is a partition, and room for every row")
    if rows.count == 0:
        return 0
    cdef int32_t* place = &out[0]
    with nogil:
        for row in range(rows.count):
            reason = field_of(&rows.key, rows.has_key, row_of(rows, row), &data, &size)
            if reason != REASON_NONE:
                break
            if size < 0:
                place[row] = -1
            else:
                place[row] = <int32_t>((murmur2_of(data, size) & 0x7FFFFFFF) % <uint32_t>partitions)
    return reason
