# Look-ups: sparse indexes searched, and from the place that they give on, the headers and records of the
# few kilobytes that were read there. One call for each of the two.

cdef struct EntrySearch:
    Cursor keys  # of the first entry
    int64_t count
    Py_ssize_t entry_size
    int key_size
    int64_t target
    int64_t slot
    bint has_values  # whether four bytes follow a key
    int64_t key  # of the entry that was found …
    int64_t value  # … and its value; -1 where there is none
    int64_t next_value  # of the entry behind


cdef void search_keys(void* argument) noexcept nogil:
    # Every step leaves less between low and high, whatever the bytes say.
    cdef EntrySearch* s = <EntrySearch*>argument
    cdef int64_t low = -1, high = s.count - 1, middle, key
    cdef Cursor at
    while low < high:
        middle = low + (high - low + 1) // 2
        at = s.keys + middle * s.entry_size
        key = get64(at) if s.key_size == 8 else get32(at)
        if key <= s.target:
            low = middle
            s.key = key
        else:
            high = middle - 1
    s.slot = low
    s.value = s.next_value = -1
    if s.has_values:
        at = s.keys + low * s.entry_size + s.key_size
        if low >= 0:
            s.value = get32(at)
        if low + 1 < s.count:
            s.next_value = get32(at + s.entry_size)


def search_entries(data, int64_t count, Py_ssize_t entry_size, Py_ssize_t key_at, int key_size,
                   int64_t target, *, bint guarded=False):
    """The last of ``count`` entries whose key is not above ``target``, or -1.

    The key is a signed integer of 4 or 8 bytes, high byte first, at ``key_at`` of every entry.
    """
    cdef Py_buffer view
    cdef EntrySearch s
    cdef Cursor base
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if key_size not in (4, 8) or not 0 <= key_at <= entry_size - key_size:
            raise ValueError(f"no key of {key_size} bytes at {key_at} of {entry_size}")
        if not 0 <= count <= view.len // entry_size:
            raise ValueError(f"{count} entries of {entry_size} bytes in {view.len}")
        base = buffer_start(&view, 0, view.len)
        s.keys = base + key_at
        s.count = count
        s.entry_size = entry_size
        s.key_size = key_size
        s.target = target
        s.has_values = False
        perform(search_keys, &s, base, view.len, guarded)
    finally:
        PyBuffer_Release(&view)
    return s.slot


cdef int search_pairs(object entries, int key_size, int64_t target, bint guarded,
                      EntrySearch* s) except -1:
    """The last entry, a key and a value, whose key is not above ``target``. Others do not run
    meanwhile: the writer adds to these entries, and cannot while they are looked at."""
    cdef Py_buffer view
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        s.keys = buffer_start(&view, 0, view.len)
        s.entry_size = key_size + 4
        s.count = view.len // s.entry_size
        s.key_size = key_size
        s.target = target
        s.has_values = True
        perform(search_keys, s, s.keys, view.len, guarded)
    finally:
        PyBuffer_Release(&view)
    return 0


def find_places(offset_entries, int64_t base_offset, int64_t offset, *, bint guarded=False):
    """What an offset index says of ``offset``: (where to begin reading for it, where the batch of the
    first entry lies that reaches it). The first is 0 and the second -1 where it says nothing that can
    be."""
    cdef EntrySearch s
    cdef int64_t key = wrapping_subtract(offset, base_offset)
    if offset < base_offset:
        return 0, -1
    if key < 0 or key > INT32_MAX:  # below zero where it passed 64 bits
        key = INT32_MAX
    search_pairs(offset_entries, OFFSET_ENTRY_SIZE - 4, key, guarded, &s)
    if s.slot >= 0 and s.key == key:
        s.next_value = s.value
    return s.value if s.value > 0 else 0, s.next_value if s.next_value >= 0 else -1


def find_time_entry(time_entries, offset_entries, int64_t base_offset, int64_t timestamp, *,
                    bint guarded=False):
    """The last entry of a time index up to ``timestamp``, and where the offset index says to begin
    reading for its batch: (timestamp, offset, position, position of the next batch). The last is -1
    where the offset index has no entry for this batch, or none behind. None: there is no such entry."""
    cdef EntrySearch s
    cdef int64_t found, key
    search_pairs(time_entries, TIME_ENTRY_SIZE - 4, timestamp, guarded, &s)
    if s.slot < 0 or s.value < 0:
        return None
    found = s.key
    key = s.value
    search_pairs(offset_entries, OFFSET_ENTRY_SIZE - 4, key, guarded, &s)
    if s.slot < 0 or s.key != key or s.next_value < 0:
        s.next_value = -1
    return found, wrapping_add(base_offset, key), s.value if s.value > 0 else 0, s.next_value


cdef struct Head:  # what a look-up must know of a batch
    Cursor p
    int64_t size
    int magic
    int64_t offset  # -1 of a wrapper: it stands only inside
    int64_t last
    int64_t timestamp


cdef int check_head(Head* h, int64_t offset) noexcept nogil:
    """A reason why no batch of this size, magic and offset can be."""
    if h.size < LOG_OVERHEAD + MESSAGE_SIZE_MIN_V0:
        return REASON_SIZE_TOO_SMALL
    if h.magic > 2:
        return REASON_UNKNOWN_MAGIC
    if h.size < LOG_OVERHEAD + (BATCH_LENGTH_MIN if h.magic == 2
                                else MESSAGE_SIZE_MIN_V1 if h.magic == 1
                                else MESSAGE_SIZE_MIN_V0):
        return REASON_SIZE_TOO_SMALL
    return REASON_OFFSET_RANGE if offset < 0 else REASON_NONE


cdef int check_deltas(Cursor p, int64_t offset) noexcept nogil:
    """A reason why no batch can reach as far as this one says: it would be passed over, and its records
    missed, before anybody looks at its CRC."""
    cdef int64_t delta = get32(p + LAST_OFFSET_DELTA_AT)
    cdef int64_t count = get32(p + RECORD_COUNT_AT)
    if delta < 0:
        return REASON_LAST_OFFSET_DELTA_RANGE
    if offset > INT64_MAX - delta:
        return REASON_OFFSET_RANGE
    return REASON_RECORD_COUNT_RANGE if count < 0 or count > delta + 1 else REASON_NONE


cdef int seek_batch(Cursor p, Cursor end, int64_t target, bint by_time, Head* h) noexcept nogil:
    """1: it is in ``h``. 0: none up to ``end``, ``h.p`` is where what is known ends, and ``h.size`` how
    far behind it to look on. -1: no header can be at ``h.p``, and ``h.size`` is the reason."""
    cdef int reason
    while True:
        h.p = p
        h.size = 0
        if end - p < MESSAGE_KEY_AT_V1:
            return 0
        h.size = <int64_t>get32(p + SIZE_AT) + LOG_OVERHEAD
        h.magic = p[MAGIC_AT]
        h.offset = get64(p + OFFSET_AT)
        reason = check_head(h, h.offset)
        if reason != REASON_NONE:
            h.size = reason
            return -1
        if h.magic == 2:
            if end - p < BATCH_HEADER_SIZE:
                h.size = 0
                return 0
            reason = check_deltas(p, h.offset)
            if reason != REASON_NONE:
                h.size = reason
                return -1
            h.last = h.offset + get32(p + LAST_OFFSET_DELTA_AT)
            h.timestamp = get64(p + MAX_TIMESTAMP_AT)
        else:
            h.last = h.offset
            h.timestamp = get64(p + MESSAGE_TIMESTAMP_AT) if h.magic == 1 else -1
            if p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
                h.offset = -1
        if (h.timestamp if by_time else h.last) >= target:
            return 1
        if h.size >= end - p:
            return 0
        p += h.size


def find_batch(data, Py_ssize_t start, Py_ssize_t limit, int64_t target, bint by_time):
    """The first batch from ``start`` on whose last offset, or with ``by_time`` whose largest timestamp,
    reaches ``target``, from headers alone: the last batch may go on behind ``limit``.

    Answers (found, position, size, base offset, last offset, max timestamp). Without one ``found`` is 0
    and ``position`` where to look on, at or behind ``limit``, or where less than a header is left; where
    no header can be, ``found`` is -1 and ``size`` the reason.
    """
    cdef Py_buffer view
    cdef Cursor base
    cdef Head h
    cdef int found
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = buffer_start(&view, start, limit)
        found = seek_batch(base + start, base + limit, target, by_time, &h)
    finally:
        PyBuffer_Release(&view)
    if found > 0:
        return 1, h.p - base, h.size, h.offset, h.last, h.timestamp
    if found == 0:
        return 0, h.p - base + h.size, 0, -1, -1, -1
    return -1, h.p - base, h.size, -1, -1, -1


cdef bint record_in_beginning(const Head* h, Cursor end, int64_t timestamp, int64_t start_offset,
                              int64_t* offset, int64_t* found) noexcept nogil:
    """Whether the bytes of a batch up to ``end`` hold the record that find_timestamp() would answer for
    all of them, and then which one it is."""
    cdef Cursor p = h.p + BATCH_HEADER_SIZE
    cdef Cursor limit = h.p + h.size if h.size < end - h.p else end
    cdef int64_t count = get32(h.p + RECORD_COUNT_AT)
    cdef int64_t base_timestamp = get64(h.p + BASE_TIMESTAMP_AT)
    cdef int attributes = get16(h.p + ATTRIBUTES_AT)
    cdef int64_t delta_min = start_offset - h.offset if start_offset > h.offset else 0
    cdef int64_t row, delta = 0, key_size = 0, time = 0
    cdef int reason = REASON_NONE
    if attributes & CODEC_MASK or not 0 <= count <= (h.size - BATCH_HEADER_SIZE) // RECORD_SIZE_MIN:
        return False
    for row in range(count):
        p = take_record(p, limit, &time, &delta, &key_size, &reason)
        if p == NULL:
            return False
        time = wrapping_add(base_timestamp, time)
        # Of a batch with the broker's time, that stands for every record.
        if (time >= timestamp or attributes & APPEND_TIME_MASK) and delta >= delta_min:
            offset[0] = wrapping_add(h.offset, delta)
            found[0] = h.timestamp if attributes & APPEND_TIME_MASK else time
            return True
    return False


def find_timed(data, int64_t room, int64_t timestamp, int64_t start_offset, int64_t end_offset,
               int64_t entry_timestamp, int64_t entry_offset):
    """The first record of a time or later, from the beginning of some batches: (1, offset, timestamp,
    leader epoch).

    ``data`` begins with a batch, and ``room`` bytes from there on hold whole batches. First, unless
    ``entry_offset`` is -1, the batch that reaches it must be in ``data``, and be the one that a time
    entry names. (0, position, 0, 0): look on from there, without an entry. (-1, 0, 0, 0): only all of a
    batch tells, or it is not so, or what is found lies before ``start_offset`` or reaches
    ``end_offset``.
    """
    cdef Py_buffer view
    cdef Cursor base, end
    cdef Head h
    cdef int found
    cdef int64_t at, offset = 0, time = 0
    cdef int32_t epoch = 0
    cdef bint is_there = False
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = buffer_start(&view, 0, view.len)
        end = base + view.len
        if entry_offset != -1:
            if (seek_batch(base, end, entry_offset, False, &h) <= 0 or h.last != entry_offset
                    or h.timestamp != entry_timestamp):
                return -1, 0, 0, 0
        found = seek_batch(base, end, timestamp, True, &h)
        at = h.p - base
        if found > 0:
            if at + h.size <= room and h.last < end_offset and h.magic == 2:
                epoch = get32(h.p + LEADER_EPOCH_AT)
                is_there = record_in_beginning(&h, end, timestamp, start_offset, &offset, &time)
    finally:
        PyBuffer_Release(&view)
    if is_there:
        return 1, offset, time, epoch
    if found == 0 and 0 < at + h.size < room:
        return 0, at + h.size, 0, 0
    return -1, 0, 0, 0
