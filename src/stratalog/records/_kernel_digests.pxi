# The MD5 of every key with its offset, as columns: what a shuffle finds the newest offset of each key by, where the
# keys do not fit in one memory. The rules are those of the map (_kernel_offset_map.pxi).

cdef struct DigestColumns:
    Block first  # bytes 0 to 7 of the MD5, as the machine reads an integer
    Block second  # bytes 8 to 15
    Block offsets
    int64_t held
    int64_t held_max
    Block events  # last offset and producer id of transactional batches, and whether they were aborted
    int64_t events_held


cdef struct Digesting:
    DigestColumns* columns
    Cursor base
    Cursor p
    Cursor end
    int flags
    int64_t size_max
    int64_t expected
    const int64_t* aborted
    int64_t aborted_count
    int ending
    int reason


cdef enum:
    DIGEST_EVENT_WIDTH = 3


cdef bint put_digests(DigestColumns* c, Keys* keys) noexcept nogil:
    cdef uint8_t digests[MD5_LANES * 16]
    cdef int first = 0, count, i
    cdef int64_t* one
    cdef int64_t* two
    cdef int64_t wanted = 8 * (c.held + keys.held)
    if not grow(&c.first, wanted) or not grow(&c.second, wanted) or not grow(&c.offsets, wanted):
        return False
    one = <int64_t*>c.first.data + c.held
    two = <int64_t*>c.second.data + c.held
    while first < keys.held:
        count = min(keys.held - first, MD5_LANES)
        stratalog_md5_some(keys.data + first, keys.sizes + first, count, digests)
        for i in range(count):
            memcpy(one + first + i, digests + 16 * i, 8)
            memcpy(two + first + i, digests + 16 * i + 8, 8)
        first += count
    memcpy(<int64_t*>c.offsets.data + c.held, keys.offsets, 8 * keys.held)
    c.held += keys.held
    keys.held = 0
    return True


cdef bint put_event(DigestColumns* c, const Header* h, bint is_aborted) noexcept nogil:
    """Note a transactional batch. Batches of one producer in a row are one event, with the first offset."""
    cdef int64_t* event
    cdef int64_t* last
    if h.magic != 2 or not h.attributes & TRANSACTIONAL_MASK:
        return True
    if not grow(&c.events, 8 * DIGEST_EVENT_WIDTH * (c.events_held + 1)):
        return False
    event = <int64_t*>c.events.data + DIGEST_EVENT_WIDTH * c.events_held
    last = event - DIGEST_EVENT_WIDTH
    if c.events_held and last[1] == h.producer_id and last[2] == is_aborted:
        return True
    event[0] = h.last_offset
    event[1] = h.producer_id
    event[2] = is_aborted
    c.events_held += 1
    return True


cdef int digest_payload(Digesting* n, Header* h, Cursor payload, Cursor limit) noexcept nogil:
    """Add the keys of one batch, message or wrapper; return the reason if it is not a sound one. Then nothing
    of it is added."""
    cdef KeyedReader reader
    cdef KeyedRecord record
    cdef Keys keys
    cdef int64_t before = n.columns.held
    cdef int reason = open_reader(&reader, h, payload, limit, n.flags, n.expected)
    if reason != REASON_NONE:
        return reason
    keys.held = 0
    while next_record(&reader, &record):
        if record.key_size < 0:
            continue
        add_key(&keys, &record)
        if keys.held == KEYS_AT_ONCE and not put_digests(n.columns, &keys):
            return NO_MEMORY
    if reader.reason != REASON_NONE:
        n.columns.held = before
        return reader.reason
    return REASON_NONE if put_digests(n.columns, &keys) else NO_MEMORY


cdef void digest_region(void* argument) noexcept nogil:
    cdef Digesting* n = <Digesting*>argument
    cdef Header h
    cdef bint is_aborted
    while True:
        if n.columns.held >= n.columns.held_max:
            n.ending = ENDING_FULL
            return
        n.ending = parse_header(n.p, n.end, n.size_max, &h, &n.reason)
        if n.ending != GOES_ON:
            return
        n.reason = check_header(&h, n.flags, n.expected)
        if n.reason == REASON_NONE:
            if is_control(&h):
                n.ending = ENDING_CONTROL
                return
            is_aborted = in_aborted(n.aborted, n.aborted_count, &h)
            if not is_aborted and h.codec != CODEC_NONE and h.payload_size:
                n.ending = ENDING_COMPRESSED
                return
            if not is_aborted:
                n.reason = digest_payload(n, &h, h.payload, h.start + h.size)
            if n.reason == REASON_NONE and not put_event(n.columns, &h, is_aborted):
                n.reason = NO_MEMORY
        if n.reason != REASON_NONE:
            n.ending = ENDING_CORRUPT
            return
        n.expected = after(&h)
        n.p += h.size


cdef class KeyDigests:
    """The MD5 of the key and the offset of every record that has a key, except for control records and those
    of aborted transactions. Gathers at least ``rows_max`` rows before it asks for take()."""

    cdef DigestColumns columns

    def __cinit__(self, int64_t rows_max=1 << 16):
        self.columns.held_max = max(rows_max, 1)
        self.renew()

    def __dealloc__(self):
        POOL.put(self.columns.first)
        POOL.put(self.columns.second)
        POOL.put(self.columns.offsets)
        free(self.columns.events.data)

    cdef void renew(self) noexcept:
        cdef size_t usual = 8 * (self.columns.held_max + (self.columns.held_max >> 1))
        self.columns.first = POOL.get(usual)
        self.columns.second = POOL.get(usual)
        self.columns.offsets = POOL.get(usual)
        self.columns.held = 0

    def __len__(self):
        return self.columns.held

    def note(self, const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit, *,
             int flags=0, int64_t expected=-1, int64_t size_max=0x7FFFFFFF, aborted=None,
             bint guarded=False):
        """Add the keys of the batches from ``position`` on; ``aborted`` as for Columns.

        Returns (position reached, ending, reason, offset expected there). COMPRESSED: the batch there waits
        for note_batch(). CONTROL: it is a control batch, which the caller looks at and passes over. FULL:
        take() first. After a BufferError the same region may be noted again.
        """
        cdef Digesting n
        cdef const int64_t[::1] left_out
        cdef int64_t held = self.columns.held, events_held = self.columns.events_held
        memset(&n, 0, sizeof(n))
        if aborted is not None and len(aborted):
            left_out = aborted
            n.aborted = &left_out[0]
            n.aborted_count = left_out.shape[0] // ABORTED_WIDTH
        n.columns = &self.columns
        n.base = region_start(data, position, limit)
        n.p = n.base + position
        n.end = n.base + limit
        n.flags = flags
        n.expected = expected
        n.size_max = size_max
        try:
            with nogil:
                perform(digest_region, &n, n.base, limit, guarded)
        except BufferError:
            self.columns.held = held
            self.columns.events_held = events_held
            raise
        if n.reason == NO_MEMORY:
            raise MemoryError
        return n.p - n.base, n.ending, n.reason, n.expected

    def note_batch(self, const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit,
                   const uint8_t[::1] payload not None, *, int flags=0, int64_t expected=-1):
        """Add the keys of the batch at ``position``, whose records or messages are ``payload``. Returns
        (position after the batch, ending, reason, offset expected there); END when all went well."""
        cdef Cursor base = region_start(data, position, limit)
        cdef Cursor inside = region_start(payload, 0, payload.shape[0])
        cdef Cursor inside_end = inside + payload.shape[0]
        cdef Digesting n
        cdef Header h
        memset(&n, 0, sizeof(n))
        n.columns = &self.columns
        n.flags = flags
        n.expected = expected
        with nogil:
            n.ending = parse_header(base + position, base + limit, 0x7FFFFFFF, &h, &n.reason)
            if n.ending == GOES_ON:
                n.reason = digest_payload(&n, &h, inside, inside_end)
                n.ending = ENDING_END if n.reason == REASON_NONE else ENDING_CORRUPT
                if n.ending == ENDING_END:
                    if not put_event(&self.columns, &h, False):
                        n.reason = NO_MEMORY
                    n.expected = after(&h)
                    position += h.size
        if n.reason == NO_MEMORY:
            raise MemoryError
        return position, n.ending, n.reason, n.expected

    def take(self):
        """Hand over three columns of 64-bit integers, and begin new ones: the first and the second half of
        each MD5, and the offset."""
        cdef Py_ssize_t size = 8 * self.columns.held
        taken = (arena_of(self.columns.first, size), arena_of(self.columns.second, size),
                 arena_of(self.columns.offsets, size))
        self.renew()
        return taken

    def take_events(self):
        """Hand over the transactional batches since the last call, in order: last offset, producer id, and
        whether the transaction was aborted. Those of one producer in a row are one event."""
        cdef const int64_t* event = <const int64_t*>self.columns.events.data
        taken = []
        for _ in range(self.columns.events_held):
            taken.append((event[0], event[1], bool(event[2])))
            event += DIGEST_EVENT_WIDTH
        self.columns.events_held = 0
        return taken


cdef Arena arena_of(Block block, Py_ssize_t size):
    cdef Arena arena = Arena.__new__(Arena)
    arena.block = block
    arena.size = size
    return arena
