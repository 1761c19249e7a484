# The newest offset of each key, in a fixed amount of memory: what compaction looks up for every record.
#
# Keys are told apart by their MD5, as Kafka's cleaner does. Kafka's limits hold (24 bytes a slot, and no more
# than a part of the slots is used), so that a map is full after the same record as Kafka's. Where in the table a
# key lies differs: the slots after the first are tried in order, which costs fewer cache misses.
#
# The table uses a part of its memory at first, and more as keys come: what is not used is never touched, and the
# keys of most logs stay in the cache. The upper bits of the hash choose the slot, so that keys lie in the order of
# their hashes, nearly, and the table can grow in place.

cdef enum:
    SLOT_BYTES = 24
    MD5_BYTES = 16
    SLOTS_AT_FIRST = 4096


cdef struct Slot:
    uint64_t digest[2]
    uint64_t offset_plus_one  # 0: the slot is empty


cdef struct Keys:  # of up to KEYS_AT_ONCE records
    int held
    const uint8_t* data[KEYS_AT_ONCE]
    int64_t sizes[KEYS_AT_ONCE]
    int64_t offsets[KEYS_AT_ONCE]
    Slot digests[KEYS_AT_ONCE]  # with the offsets that were found


cdef extern from *:
    """
    /* The upper half of a product spreads a hash evenly over the slots, without a division. */
    static inline int64_t stratalog_scaled(uint64_t hash, int64_t count) {
        return (int64_t)(((unsigned __int128)hash * (uint64_t)count) >> 64);
    }
    """
    int64_t stratalog_scaled(uint64_t hash, int64_t count) noexcept nogil
    void __builtin_prefetch(const void*, int, int) noexcept nogil


cdef struct Table:
    Slot* slots
    int64_t count  # in use …
    int64_t count_max  # … and in memory
    int64_t used
    int64_t used_max
    int64_t latest


cdef inline Slot* home_of(const Table* table, const Slot* key) noexcept nogil:
    return table.slots + stratalog_scaled(key.digest[0], table.count)


cdef inline Slot* slot_of(const Table* table, const Slot* key) noexcept nogil:
    """The slot that holds a key, or the empty one where it belongs; NULL if all are taken by others."""
    cdef Slot* end = table.slots + table.count
    cdef Slot* slot = home_of(table, key)
    cdef int64_t tried
    for tried in range(table.count):
        if slot.offset_plus_one == 0 or (slot.digest[0] == key.digest[0]
                                         and slot.digest[1] == key.digest[1]):
            return slot
        slot += 1
        if slot == end:
            slot = table.slots
    return NULL


cdef struct Stash:  # keys that have no place in a growing table yet
    Slot* slots
    int64_t count
    int64_t capacity


cdef bint put_aside(Stash* stash, const Slot* slot) noexcept nogil:
    cdef int64_t capacity = 2 * stash.capacity + 64
    cdef Slot* slots = stash.slots
    if stash.count == stash.capacity:
        slots = <Slot*>realloc(slots, capacity * SLOT_BYTES)
        if slots == NULL:
            return False
        stash.slots = slots
        stash.capacity = capacity
    slots[stash.count] = slot[0]
    stash.count += 1
    return True


cdef bint grow_table(Table* table) noexcept nogil:
    """Spread the keys over twice as many slots; False if there is no memory.

    From the last slot on: nearly every key moves up, past those that have not moved yet. What does not, in the
    first slots and where the table ends, is put aside until all have moved.
    """
    cdef Stash stash
    cdef Slot moved
    cdef int64_t at, i
    cdef bint is_done = True
    memset(&stash, 0, sizeof(stash))
    at = table.count
    table.count = min(2 * table.count, table.count_max)
    while at > 0:
        at -= 1
        moved = table.slots[at]
        if moved.offset_plus_one == 0:
            continue
        table.slots[at].offset_plus_one = 0
        i = home_of(table, &moved) - table.slots
        if i >= at:
            while i < table.count and table.slots[i].offset_plus_one:
                i += 1
        if at <= i < table.count:
            table.slots[i] = moved
        else:
            is_done &= put_aside(&stash, &moved)
    for i in range(stash.count):
        slot_of(table, &stash.slots[i])[0] = stash.slots[i]
    free(stash.slots)
    return is_done


cdef inline bint make_room(Table* table) noexcept nogil:
    """See to it that there is an empty slot for every key at hand; False if there is no memory."""
    while table.count < table.count_max and table.used + KEYS_AT_ONCE > table.count // 2:
        if not grow_table(table):
            return False
    return True


cdef void digest_keys(const Table* table, Keys* keys) noexcept nogil:
    cdef uint8_t digests[MD5_LANES * 16]
    cdef int first = 0, count, i
    while first < keys.held:
        count = min(keys.held - first, MD5_LANES)
        stratalog_md5_some(keys.data + first, keys.sizes + first, count, digests)
        # The slots come from memory while the next keys are hashed.
        for i in range(count):
            memcpy(keys.digests[first + i].digest, digests + 16 * i, 16)
            __builtin_prefetch(home_of(table, &keys.digests[first + i]), 1, 1)
        first += count


cdef inline int put_slot(Table* table, const Slot* key, int64_t offset) noexcept nogil:
    """Note the offset of a digest, for which make_room() was called; ENDING_END or ENDING_FULL."""
    cdef Slot* slot
    if table.used >= table.used_max:  # before every put, as in Kafka: even of a key that is there
        return ENDING_FULL
    slot = slot_of(table, key)
    if slot.offset_plus_one == 0:
        slot.digest[0] = key.digest[0]
        slot.digest[1] = key.digest[1]
        table.used += 1
    slot.offset_plus_one = <uint64_t>offset + 1
    table.latest = offset
    return ENDING_END


cdef int put_keys(Table* table, Keys* keys) noexcept nogil:
    """Note the offsets of all keys: ENDING_END; or ENDING_FULL, with those before it noted; or NO_MEMORY."""
    cdef int i
    if not make_room(table):
        return NO_MEMORY
    digest_keys(table, keys)
    for i in range(keys.held):
        if put_slot(table, &keys.digests[i], keys.offsets[i]) != ENDING_END:
            return ENDING_FULL
    keys.held = 0
    return ENDING_END


cdef void find_keys(const Table* table, Keys* keys) noexcept nogil:
    """Put the newest offset of every key into ``offset_plus_one`` of its digest; 0 if there is none."""
    cdef const Slot* slot
    cdef int i
    digest_keys(table, keys)
    for i in range(keys.held):
        slot = slot_of(table, &keys.digests[i])
        keys.digests[i].offset_plus_one = 0 if slot == NULL else slot.offset_plus_one


cdef inline void add_key(Keys* keys, const KeyedRecord* record) noexcept nogil:
    keys.data[keys.held] = record.key
    keys.sizes[keys.held] = record.key_size
    keys.offsets[keys.held] = record.offset
    keys.held += 1


cdef struct Noting:
    Table* table
    Cursor base
    Cursor p
    Cursor end
    int flags
    int64_t size_max
    int64_t expected
    int64_t below  # where the batches must end, -1 for anywhere
    int64_t first_offset
    const int64_t* aborted
    int64_t aborted_count
    int ending
    int reason
    int64_t records


cdef int note_payload(Noting* n, Header* h, Cursor payload, Cursor limit) noexcept nogil:
    """Note the keys of one batch, message or wrapper; ENDING_END, ENDING_FULL, ENDING_CORRUPT, NO_MEMORY."""
    cdef KeyedReader reader
    cdef KeyedRecord record
    cdef Keys keys
    cdef int ending
    keys.held = 0
    n.reason = open_reader(&reader, h, payload, limit, n.flags, n.expected)
    if n.reason != REASON_NONE:
        return ENDING_CORRUPT
    while next_record(&reader, &record):
        if record.key_size < 0 or record.offset < n.first_offset:
            continue
        add_key(&keys, &record)
        if keys.held == KEYS_AT_ONCE:
            ending = put_keys(n.table, &keys)
            if ending != ENDING_END:
                return ending
    n.reason = reader.reason
    if n.reason != REASON_NONE:
        return ENDING_CORRUPT
    ending = put_keys(n.table, &keys)
    if ending == ENDING_END:
        n.records += h.count
    return ending


cdef inline void note_end(Noting* n, const Header* h) noexcept nogil:
    if h.last_offset >= n.first_offset:
        n.table.latest = h.last_offset
    n.expected = after(h)


cdef void note_region(void* argument) noexcept nogil:
    cdef Noting* n = <Noting*>argument
    cdef Header h
    while True:
        n.ending = parse_header(n.p, n.end, n.size_max, &h, &n.reason)
        if n.ending != GOES_ON:
            return
        n.reason = check_header(&h, n.flags, n.expected)
        if n.reason == REASON_NONE and n.flags & CHECK_ORDER and 0 <= n.below <= h.last_offset:
            n.reason = REASON_OFFSET_ORDER
        if n.reason != REASON_NONE:
            n.ending = ENDING_CORRUPT
            return
        if not is_control(&h) and not in_aborted(n.aborted, n.aborted_count, &h):
            if h.codec != CODEC_NONE and h.payload_size:
                n.ending = ENDING_COMPRESSED
                return
            n.ending = note_payload(n, &h, h.payload, h.start + h.size)
            if n.ending != ENDING_END:
                return
        note_end(n, &h)
        n.p += h.size


cdef class OffsetMap:
    """The newest offset of each key, keys told apart by their MD5, in ``memory_bytes`` (24 a slot).

    No more than ``load_factor`` of the slots are used. ``latest_offset`` is how far the log was noted: the
    last offset that was put, or the end of the last batch that was noted whole; -1 before the first.
    """

    cdef Table table
    cdef readonly int64_t records

    def __cinit__(self, int64_t memory_bytes, double load_factor=0.9):
        self.table.count_max = memory_bytes // SLOT_BYTES
        if not 0 < load_factor <= 1 or self.table.count_max * load_factor < 1:
            raise ValueError(f"no room for a key: {memory_bytes} bytes, of which {load_factor} may be used")
        self.table.used_max = <int64_t>(self.table.count_max * load_factor)
        self.table.latest = -1
        self.table.count = min(self.table.count_max, SLOTS_AT_FIRST)
        self.table.slots = <Slot*>calloc(self.table.count_max, SLOT_BYTES)
        if self.table.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.table.slots)

    def __len__(self):
        return self.table.used

    @property
    def slots(self):
        return self.table.count_max

    @property
    def keys_max(self):
        """How many keys the map takes."""
        return self.table.used_max

    @property
    def is_full(self):
        return self.table.used >= self.table.used_max

    @property
    def latest_offset(self):
        return self.table.latest

    @latest_offset.setter
    def latest_offset(self, int64_t offset):
        self.table.latest = offset

    def put(self, const uint8_t[::1] key not None, int64_t offset):
        """Note a key; return False if the map is full."""
        cdef Keys keys
        if not 0 <= offset < INT64_MAX:
            raise ValueError(f"not an offset: {offset}")
        one_key(key, &keys)
        keys.offsets[0] = offset
        ending = put_keys(&self.table, &keys)
        if ending == NO_MEMORY:
            raise MemoryError
        return ending == ENDING_END

    def put_digest(self, const uint8_t[::1] digest not None, int64_t offset):
        """Note a key by its MD5; return False if the map is full."""
        cdef Slot key
        if digest.shape[0] != MD5_BYTES:
            raise ValueError(f"not an MD5: {digest.shape[0]} bytes, instead of {MD5_BYTES}")
        if not 0 <= offset < INT64_MAX:
            raise ValueError(f"not an offset: {offset}")
        if not make_room(&self.table):
            raise MemoryError
        memcpy(key.digest, &digest[0], MD5_BYTES)
        return put_slot(&self.table, &key, offset) == ENDING_END

    def get(self, const uint8_t[::1] key not None):
        """Return the newest offset of a key; -1 if it was not noted."""
        cdef Keys keys
        one_key(key, &keys)
        find_keys(&self.table, &keys)
        return <int64_t>(keys.digests[0].offset_plus_one - 1)

    def note(self, const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit, *,
             int64_t first_offset=0, int flags=0, int64_t expected=-1, int64_t below=-1,
             int64_t size_max=0x7FFFFFFF, aborted=None, bint guarded=False):
        """Note the keys of the batches from ``position`` on, of records at or above ``first_offset``.
        Control batches, and those of ``aborted`` transactions (as for Columns), are passed over. With
        Check.ORDER, a batch that reaches ``below`` is corrupt.

        Returns (position reached, ending, reason, offset expected there). COMPRESSED: the batch there waits
        for note_batch(). FULL: the map is, before a record of the batch there; latest_offset says how far it
        got. After a BufferError the same region may be noted again. A batch that turns out to be corrupt may
        be noted in part.
        """
        cdef Noting n = self.noting(first_offset, flags, expected)
        cdef const int64_t[::1] left_out
        if aborted is not None and len(aborted):
            left_out = aborted
            n.aborted = &left_out[0]
            n.aborted_count = left_out.shape[0] // ABORTED_WIDTH
        n.base = region_start(data, position, limit)
        n.p = n.base + position
        n.end = n.base + limit
        n.size_max = size_max
        n.below = below
        with nogil:
            perform(note_region, &n, n.base, limit, guarded)
        self.records += n.records
        if n.ending == NO_MEMORY:
            raise MemoryError
        return n.p - n.base, n.ending, n.reason, n.expected

    def note_batch(self, const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit,
                   const uint8_t[::1] payload not None, *, int64_t first_offset=0, int flags=0,
                   int64_t expected=-1):
        """Note the batch at ``position``, whose records or messages are ``payload``. Returns (position after
        the batch, ending, reason, offset expected there) as note() does; END when all went well."""
        cdef Cursor base = region_start(data, position, limit)
        cdef Cursor inside = region_start(payload, 0, payload.shape[0])
        cdef Cursor inside_end = inside + payload.shape[0]
        cdef Noting n = self.noting(first_offset, flags, expected)
        cdef Header h
        with nogil:
            n.ending = parse_header(base + position, base + limit, 0x7FFFFFFF, &h, &n.reason)
            if n.ending == GOES_ON:
                n.ending = note_payload(&n, &h, inside, inside_end)
                if n.ending == ENDING_END:
                    note_end(&n, &h)
                    position += h.size
        self.records += n.records
        if n.ending == NO_MEMORY:
            raise MemoryError
        return position, n.ending, n.reason, n.expected

    cdef Noting noting(self, int64_t first_offset, int flags, int64_t expected) noexcept:
        cdef Noting n
        memset(&n, 0, sizeof(n))
        n.table = &self.table
        n.first_offset = first_offset
        n.flags = flags
        n.expected = expected
        return n


cdef void one_key(const uint8_t[::1] key, Keys* keys) noexcept:
    keys.held = 1
    keys.sizes[0] = key.shape[0]
    keys.data[0] = &key[0] if key.shape[0] else <const uint8_t*>b""
