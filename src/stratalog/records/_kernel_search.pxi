# The search for a batch among bytes that are none: what lies after damage, position by position.

cdef enum:
    SEARCH_STEP = 64  # positions that are looked at together
    LEGACY_ATTRIBUTES_MAX = 0x0F  # codec and timestamp type: magic 0 and 1 have no others
    FOUND_NONE = 0
    FOUND_WHOLE = 1
    FOUND_PART = -1
    FOUND_TOO_MANY = -2


cdef int check_content(const Header* h) noexcept nogil:
    """Whether the records, or the message, of a batch that is not compressed decode to its end."""
    cdef Cursor p = h.payload
    cdef Cursor limit = h.payload + h.payload_size
    cdef int64_t timestamp, delta, key_size, i
    cdef int64_t delta_max = h.last_offset - h.base_offset
    cdef int reason = REASON_NONE
    if h.magic < 2:
        return check_message_body(p, limit)
    for i in range(h.count):
        p = take_record(p, limit, &timestamp, &delta, &key_size, &reason)
        if p == NULL:
            return reason
        if delta > delta_max:
            return REASON_OFFSET_DELTA_RANGE
    return REASON_NONE if p == limit else REASON_BATCH_TRAILING_BYTES


cdef int check_message_body(Cursor p, Cursor limit) noexcept nogil:
    # body := int32 key size (-1 null), key, int32 value size (-1 null), value
    cdef int64_t size = get32(p)
    if size < -1 or size > limit - p - 8:
        return REASON_FIELD_LENGTH
    p += 4 + (size if size > 0 else 0)
    size = get32(p)
    p += 4
    if size < -1 or size > limit - p:
        return REASON_FIELD_LENGTH
    p += size if size > 0 else 0
    return REASON_NONE if p == limit else REASON_RECORD_TRAILING_BYTES


cdef struct Search:
    Cursor base
    Cursor p
    Cursor end
    int64_t rest  # bytes of the file after ``end``
    int64_t first_offset
    int64_t last_offset
    int64_t size_max
    int64_t checked  # bytes whose CRC was computed …
    int64_t checked_max  # … and how many may be
    int64_t size
    int found
    uint8_t size_top  # the largest first byte of a size
    uint8_t tops[2]  # the first byte of an offset: that of the first, and of the last possible


cdef inline bint may_begin(Cursor p, const Search* s) noexcept nogil:
    """Whether an entry may begin at one of the next SEARCH_STEP positions. Written so that the compiler
    compares many bytes at a time."""
    cdef uint8_t hit = 0
    cdef uint8_t one = s.tops[0], other = s.tops[1], size_top = s.size_top
    cdef int i
    for i in range(SEARCH_STEP):
        hit |= ((<uint8_t>(p[i] == one) | <uint8_t>(p[i] == other))
                & <uint8_t>(p[i + SIZE_AT] <= size_top) & <uint8_t>(p[i + MAGIC_AT] <= 2))
    return hit != 0


cdef int look_at(Search* s, Cursor p) noexcept nogil:
    """FOUND_WHOLE, FOUND_PART, or FOUND_NONE for the entry at ``p``, where a message at least has room."""
    cdef int64_t room = s.end - p
    cdef int64_t size = get32(p + SIZE_AT)
    cdef int64_t offset = get64(p + OFFSET_AT)
    cdef Header h
    h.start = p
    h.magic = p[MAGIC_AT]
    h.size = size + LOG_OVERHEAD
    if (h.magic > 2 or size < MESSAGE_SIZE_MIN_V0 or h.size > s.size_max or h.size > room + s.rest
            or not s.first_offset <= offset <= s.last_offset):
        return FOUND_NONE
    h.base_offset = offset
    if h.magic == 2:
        if size < BATCH_LENGTH_MIN or room < BATCH_HEADER_SIZE:
            return FOUND_NONE
        if parse_batch_header(p, &h) != REASON_NONE:
            return FOUND_NONE
    elif not looks_like_message(p, size, room, h.magic):
        return FOUND_NONE
    else:
        h.crc = <uint32_t>get32(p + MESSAGE_CRC_AT)
    s.size = h.size
    if h.size > room:
        return FOUND_PART
    s.checked += h.size
    if s.checked > s.checked_max:
        return FOUND_TOO_MANY
    return FOUND_WHOLE if crc_matches(&h) else FOUND_NONE


cdef inline bint looks_like_message(Cursor p, int64_t size, int64_t room, int magic) noexcept nogil:
    cdef int key_at = MESSAGE_KEY_AT_V1 if magic == 1 else MESSAGE_KEY_AT_V0
    cdef int least = MESSAGE_SIZE_MIN_V1 if magic == 1 else MESSAGE_SIZE_MIN_V0
    cdef int64_t key_size
    if size < least or room < LOG_OVERHEAD + least:
        return False
    if p[MESSAGE_ATTRIBUTES_AT] > LEGACY_ATTRIBUTES_MAX:
        return False
    if p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK > CODEC_LZ4:
        return False
    key_size = get32(p + key_at)
    return -1 <= key_size <= size - least


cdef void search_entries_in(void* argument) noexcept nogil:
    cdef Search* s = <Search*>argument
    cdef Cursor p = s.p
    cdef Cursor zeros
    cdef Cursor stop
    cdef int64_t needed = LOG_OVERHEAD + MESSAGE_SIZE_MIN_V0
    if s.rest > 0:
        needed = BATCH_HEADER_SIZE  # the rest of a header may come with more data
    s.found = FOUND_NONE
    while s.end - p >= needed:
        while s.end - p >= SEARCH_STEP + BATCH_HEADER_SIZE and not may_begin(p, s):
            p += SEARCH_STEP
        stop = p + SEARCH_STEP
        while p < stop and s.end - p >= needed:
            if get32(p + SIZE_AT) == 0:
                # No size is zero: whatever has only zeros there is passed over at once.
                zeros = first_nonzero(p + LOG_OVERHEAD, s.end)
                p = max(p + 1, zeros - (LOG_OVERHEAD - 1))
                continue
            s.found = look_at(s, p)
            if s.found != FOUND_NONE:
                s.p = p
                return
            p += 1
    # From the first position on that was not looked at, as far as the caller may know.
    s.p = s.end if s.rest == 0 else max(s.p, s.end - needed + 1)


def find_intact(data, Py_ssize_t position, Py_ssize_t limit, int64_t rest, int64_t first_offset,
                int64_t last_offset, int64_t size_max=0x7FFFFFFF,
                int64_t checked_max=0x7FFFFFFFFFFFFFFF, *, bint guarded=False):
    """Find the first batch or message from ``position`` on whose header is plausible and whose CRC matches.

    ``rest`` is how many bytes of the file follow ``limit``; the offset of the entry lies between
    ``first_offset`` and ``last_offset``. Answers (found, position, size, bytes checked). Found is 1: an
    entry of this size is here. 0: none begins before the position, where the search goes on with more
    data. -1: the header of an entry is here that ends after ``limit``. -2: more than ``checked_max``
    bytes would have to be checked.
    """
    cdef Py_buffer view
    cdef Search s
    memset(&s, 0, sizeof(s))
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        s.base = buffer_start(&view, position, limit)
        s.p = s.base + position
        s.end = s.base + limit
        s.rest = rest
        s.first_offset = first_offset
        s.last_offset = last_offset
        s.size_max = size_max
        s.checked_max = checked_max
        s.size_top = <uint8_t>(max(min(size_max, INT32_MAX), 0) >> 24)
        s.tops[0] = <uint8_t>(<uint64_t>first_offset >> 56)
        s.tops[1] = <uint8_t>(<uint64_t>last_offset >> 56)
        perform_sized(search_entries_in, &s, s.base, limit, guarded, limit - position)
    finally:
        PyBuffer_Release(&view)
    return s.found, s.p - s.base, s.size if s.found else 0, s.checked


cdef inline bint ends_well(int ending, int64_t rest) noexcept nogil:
    return ending == ENDING_END or (ending == ENDING_INCOMPLETE and rest > 0)


cdef int look_at_v07(Search* s, Cursor p) noexcept nogil:
    """The same for an entry of 0.7. The CRC of an empty message proves nothing: what follows it must."""
    cdef Header h
    cdef int ending, reason
    cdef int64_t room = s.end - p
    cdef int64_t length = get32(p)
    cdef int64_t size = length + V07_LENGTH_SIZE
    cdef int magic = p[V07_MAGIC_AT]
    if magic > 1 or size > s.size_max or size > room + s.rest or length < V07_LENGTH_MIN_V0 + magic:
        return FOUND_NONE
    if magic == 1 and p[V07_ATTRIBUTES_AT] & V07_CODEC_MASK > CODEC_SNAPPY:
        return FOUND_NONE
    s.size = size
    if size > room:
        return FOUND_PART
    while True:
        ending = parse_entry_v07(p, s.end, 0, &h, &reason)
        if ending != GOES_ON:
            # Only empty messages, up to the end of the file or of what is known of it.
            return FOUND_WHOLE if ends_well(ending, s.rest) else FOUND_NONE
        s.checked += h.size
        if s.checked > s.checked_max:
            return FOUND_TOO_MANY
        if not crc_matches_v07(&h):
            return FOUND_NONE
        if h.payload_size > 0:
            return FOUND_WHOLE
        p += h.size


cdef void search_entries_v07(void* argument) noexcept nogil:
    cdef Search* s = <Search*>argument
    cdef Cursor p = s.p
    cdef Cursor zeros
    cdef int64_t needed = V07_LENGTH_SIZE + V07_LENGTH_MIN_V0
    if s.rest > 0:
        needed += 1
    s.found = FOUND_NONE
    while s.end - p >= needed:
        if get32(p) == 0:
            zeros = first_nonzero(p + V07_LENGTH_SIZE, s.end)
            p = max(p + 1, zeros - (V07_LENGTH_SIZE - 1))
            continue
        if p[V07_MAGIC_AT] <= 1:
            s.found = look_at_v07(s, p)
            if s.found != FOUND_NONE:
                s.p = p
                return
        p += 1
    s.p = s.end if s.rest == 0 else max(s.p, s.end - needed + 1)


def find_intact_v07(data, Py_ssize_t position, Py_ssize_t limit, int64_t rest,
                    int64_t size_max=0x7FFFFFFF, int64_t checked_max=0x7FFFFFFFFFFFFFFF):
    """find_intact() for 0.7 files."""
    cdef Py_buffer view
    cdef Search s
    memset(&s, 0, sizeof(s))
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        s.base = buffer_start(&view, position, limit)
        s.p = s.base + position
        s.end = s.base + limit
        s.rest = rest
        s.size_max = size_max
        s.checked_max = checked_max
        perform_sized(search_entries_v07, &s, s.base, limit, False, limit - position)
    finally:
        PyBuffer_Release(&view)
    return s.found, s.p - s.base, s.size if s.found else 0, s.checked
