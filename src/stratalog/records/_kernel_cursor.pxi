# Reading bytes. Nothing in the kernel reads a byte by any other way: every function has a limit.

cdef inline int32_t get32(Cursor p) noexcept nogil:
    return <int32_t>(<uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3])


cdef inline int64_t get64(Cursor p) noexcept nogil:
    return <int64_t>(<uint64_t><uint32_t>get32(p) << 32 | <uint32_t>get32(p + 4))


cdef inline int32_t get16(Cursor p) noexcept nogil:
    return <int16_t>(<uint16_t>p[0] << 8 | p[1])


cdef inline int64_t wrapping_add(int64_t a, int64_t b) noexcept nogil:
    # Java's longs wrap, and timestamps at the limits of 64 bits are stored that way.
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef inline int64_t wrapping_subtract(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a - <uint64_t>b)


cdef Cursor take_groups(Cursor p, Cursor limit, int groups_max, int64_t* value) noexcept nogil:
    # varint := group{1..5}, varlong := group{1..10}; seven bits a group, low first, zig-zag.
    # Bits of the last group beyond the type are dropped, as Kafka does.
    cdef uint64_t raw = 0
    cdef int group
    for group in range(groups_max):
        if p >= limit:
            return NULL
        raw |= <uint64_t>(p[0] & 0x7F) << (7 * group)
        if p[0] < 0x80:
            if groups_max == 5:
                raw = <uint32_t>raw
            value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return p + 1
        p += 1
    return NULL


cdef inline Cursor take_number(Cursor p, Cursor limit, int groups_max, int64_t* value) noexcept nogil:
    # One and two groups, which is nearly all there are, without a call.
    cdef uint32_t raw
    if limit - p >= 2:
        raw = p[0]
        if raw < 0x80:
            value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return p + 1
        if p[1] < 0x80:
            raw = (raw & 0x7F) | <uint32_t>p[1] << 7
            value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return p + 2
    return take_groups(p, limit, groups_max, value)


cdef inline Cursor take_varint(Cursor p, Cursor limit, int64_t* value) noexcept nogil:
    return take_number(p, limit, 5, value)


cdef inline Cursor take_varlong(Cursor p, Cursor limit, int64_t* value) noexcept nogil:
    return take_number(p, limit, 10, value)


cdef inline Cursor take_field(Cursor p, Cursor limit, Cursor* field, int64_t* size,
                              int* reason) noexcept nogil:
    # field := varint size (-1 null), bytes{size}
    p = take_varint(p, limit, size)
    if p == NULL:
        reason[0] = REASON_VARINT
        return NULL
    field[0] = p
    if size[0] < 0:
        if size[0] != -1:
            reason[0] = REASON_FIELD_LENGTH
            return NULL
        return p
    if size[0] > limit - p:
        reason[0] = REASON_FIELD_LENGTH
        return NULL
    return p + size[0]


cdef Cursor first_nonzero(Cursor p, Cursor limit) noexcept nogil:
    """The first byte that is not zero, or the limit."""
    cdef uint64_t words[8]
    while limit - p >= 64:
        memcpy(words, p, 64)
        if (words[0] | words[1] | words[2] | words[3]
                | words[4] | words[5] | words[6] | words[7]):
            break
        p += 64
    while limit - p >= 8:
        memcpy(words, p, 8)
        if words[0]:
            break
        p += 8
    while p < limit and p[0] == 0:
        p += 1
    return p


cdef inline bint all_zero(Cursor p, Cursor limit) noexcept nogil:
    return first_nonzero(p, limit) == limit
