# The newest offset of every key: a table of digests that is spilled when it is full.
#
# entry := uint64 high, uint64 low, int64 offset      high and low are the key's digest

cdef extern from "_table.h" nogil:
    void stratalog_prefetch(const void* address)
    void stratalog_expect_random_access(void* data, size_t size)
    uint64_t stratalog_little64(const uint8_t* data)


cdef enum:
    LATEST_ENTRY_SIZE = 24
    LATEST_FANOUT = 32  # parts that a full table is spilled into
    LATEST_FANOUT_BITS = 5
    LATEST_LEVEL_MAX = 11  # so many times a part can be divided again: the digest has no more bits then
    LATEST_SLOTS_START = 4096
    LATEST_STRIDE = 64  # keys that are hashed before the first of them is looked up
    SEED_SIZE = 16


cdef struct Newest:
    uint64_t high
    uint64_t low
    int64_t offset  # -1: the slot is free


cdef struct Digest:
    uint64_t high
    uint64_t low


cdef inline uint64_t rotated(uint64_t word, int bits) noexcept nogil:
    return word << bits | word >> (64 - bits)


cdef inline void mix(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotated(v[1], 13) ^ v[0]
    v[3] = rotated(v[3], 16) ^ v[2]
    v[0] = rotated(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotated(v[1], 17) ^ v[2]
    v[3] = rotated(v[3], 21) ^ v[0]
    v[2] = rotated(v[2], 32)


cdef inline uint64_t folded(const uint64_t* v) noexcept nogil:
    return v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline uint64_t last_word(Cursor p, int64_t size) noexcept nogil:
    """What is left of a key after its whole words, with its size in the highest byte."""
    cdef uint64_t word = <uint64_t>(size & 0xFF) << 56
    cdef int64_t left = size & 7
    cdef int i
    p += size - left
    if left and size >= 8:
        return word | stratalog_little64(p + left - 8) >> (64 - 8 * left)  # shifts out what is before
    for i in range(<int>left):
        word |= <uint64_t>p[i] << (8 * i)
    return word


cdef inline Digest siphash128(const uint64_t* seed, Cursor key, int64_t size) noexcept nogil:
    """SipHash-1-3 with 128 bits of output, after Aumasson and Bernstein."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef int64_t i
    cdef Digest digest
    v[0] = seed[0] ^ <uint64_t>0x736F6D6570736575
    v[1] = seed[1] ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = seed[0] ^ <uint64_t>0x6C7967656E657261
    v[3] = seed[1] ^ <uint64_t>0x7465646279746573
    for i in range(size >> 3):
        word = stratalog_little64(key + 8 * i)
        v[3] ^= word
        mix(v)
        v[0] ^= word
    word = last_word(key, size)
    v[3] ^= word
    mix(v)
    v[0] ^= word
    v[2] ^= 0xEE
    mix(v)
    mix(v)
    mix(v)
    digest.high = folded(v)
    v[1] ^= 0xDD
    mix(v)
    mix(v)
    mix(v)
    digest.low = folded(v)
    return digest


cdef int load_seed(uint64_t* words, const uint8_t[::1] seed) except -1:
    if seed.shape[0] != SEED_SIZE:
        raise ValueError("a seed has 16 bytes")
    words[0] = stratalog_little64(&seed[0])
    words[1] = stratalog_little64(&seed[8])
    return 0


def siphash(const uint8_t[::1] seed not None, const uint8_t[::1] data not None):
    """The two halves of the 128-bit SipHash-1-3 of ``data`` under a seed of 16 bytes."""
    cdef uint64_t words[2]
    cdef Digest digest
    load_seed(words, seed)
    digest = siphash128(words, &data[0] if data.shape[0] else <Cursor>b"", data.shape[0])
    return digest.high, digest.low


cdef void sort_numbers(int64_t* numbers, int64_t* spare, int64_t count) noexcept nogil:
    """Byte by byte, the lowest first; bytes in which all numbers agree are passed over."""
    cdef int64_t starts[256]
    cdef int64_t* source = numbers
    cdef int64_t* target = spare
    cdef int64_t* swap
    cdef uint64_t differ = 0
    cdef int64_t i, total, size
    cdef int shift, digit
    for i in range(1, count):
        differ |= <uint64_t>(numbers[i] ^ numbers[0])
    for shift in range(0, 64, 8):
        if (differ >> shift) & 0xFF == 0:
            continue
        memset(starts, 0, sizeof(starts))
        for i in range(count):
            starts[(<uint64_t>source[i] >> shift) & 0xFF] += 1
        total = 0
        for digit in range(256):
            size = starts[digit]
            starts[digit] = total
            total += size
        for i in range(count):
            digit = (<uint64_t>source[i] >> shift) & 0xFF
            target[starts[digit]] = source[i]
            starts[digit] += 1
        swap = source
        source = target
        target = swap
    if source != numbers:
        memcpy(numbers, source, count * 8)


def sort_offsets(int64_t[::1] offsets not None):
    """Sort offsets, none of them negative, in place; as much memory again is used for it."""
    cdef int64_t count = offsets.shape[0]
    cdef int64_t* spare
    if count < 2:
        return
    spare = <int64_t*>malloc(count * 8)
    if spare == NULL:
        raise MemoryError
    with nogil:
        sort_numbers(&offsets[0], spare, count)
    free(spare)


cdef inline int64_t home_slot(uint64_t low, int64_t slots) noexcept nogil:
    return <int64_t>(((low >> 32) * <uint64_t>slots) >> 32)


cdef inline bint put_newest(Newest* table, int64_t slots, uint64_t high, uint64_t low,
                            int64_t offset) noexcept nogil:
    """Whether the key is new; there is a free slot."""
    cdef int64_t slot = home_slot(low, slots)
    while True:
        if table[slot].offset < 0:
            table[slot].high = high
            table[slot].low = low
            table[slot].offset = offset
            return True
        if table[slot].low == low and table[slot].high == high:
            if offset > table[slot].offset:
                table[slot].offset = offset
            return False
        slot += 1
        if slot == slots:
            slot = 0


cdef inline void prefetch_slot(const Newest* table, int64_t slots, uint64_t low) noexcept nogil:
    cdef const Newest* slot = table + home_slot(low, slots)
    stratalog_prefetch(slot)
    stratalog_prefetch(<const uint8_t*>(slot + 2) - 1)  # the next one as well, where that is another line


cdef class LatestKeys:
    """The newest offset of each key, in a table of at most ``memory`` bytes.

    A key is known by its 128-bit digest under ``seed``. The table grows as keys come. When it is full,
    spill() takes its entries out, for load() to take in again, a part at a time.
    """

    cdef Block block
    cdef int64_t slots
    cdef int64_t slots_max
    cdef uint64_t seed[2]
    cdef readonly int64_t count
    cdef readonly int64_t count_max
    cdef readonly int64_t keyless

    def __cinit__(self, const uint8_t[::1] seed not None, int64_t memory):
        load_seed(self.seed, seed)
        # While it grows by a factor of four, the old table is there as well.
        self.slots_max = min(memory // 5 * 4 // LATEST_ENTRY_SIZE, <int64_t>0xFFFFFFFF)
        if self.slots_max < 4:
            raise ValueError("a table of keys takes at least 120 bytes")
        self.count_max = self.slots_max // 4 * 3
        self.slots = self.slots_max
        while self.slots // 4 >= LATEST_SLOTS_START:
            self.slots //= 4

    def __dealloc__(self):
        free(self.block.data)

    def note(self, Rows rows not None, int64_t row=0):
        """Take in the keys of rows that bring their offsets, from ``row`` on. Rows without a key are
        counted. Answers the row reached, which is not the last where the table is full; and the reason
        where an offset is negative or a key's bounds are wrong, else 0."""
        cdef int64_t end
        cdef int reason = REASON_NONE
        if not rows.has_offsets or row < 0 or row > rows.count:
            raise ValueError("rows bring their offsets, and there is such a row")
        while row < rows.count and self.count < self.count_max and reason == REASON_NONE:
            end = min(rows.count, row + self.make_room(rows.count - row))
            with nogil:
                row = self.note_some(rows, row, end, &reason)
        return row, reason

    cdef int64_t note_some(self, Rows rows, int64_t row, int64_t end, int* reason) noexcept nogil:
        cdef Newest* table = <Newest*>self.block.data
        cdef Digest digests[LATEST_STRIDE]
        cdef int64_t offsets[LATEST_STRIDE]
        cdef int64_t held, i, offset, size = 0
        cdef Cursor key = NULL
        while row < end and reason[0] == REASON_NONE:
            held = 0
            while row < end and held < LATEST_STRIDE:
                offset = rows.offsets[rows.first_offset + row]
                reason[0] = field_of(&rows.key, rows.has_key, row, &key, &size)
                if offset < 0:
                    reason[0] = REASON_OFFSET_RANGE
                if reason[0] != REASON_NONE:
                    break
                row += 1
                if size < 0:
                    self.keyless += 1
                    continue
                digests[held] = siphash128(self.seed, key, size)
                offsets[held] = offset
                prefetch_slot(table, self.slots, digests[held].low)
                held += 1
            for i in range(held):
                self.count += put_newest(table, self.slots, digests[i].high, digests[i].low, offsets[i])
        return row

    def load(self, const uint8_t[::1] entries not None, int64_t entry=0):
        """Take in entries that were spilled, from ``entry`` on. Answers the entry reached, which is not
        the last where the table is full."""
        cdef int64_t count = entries.shape[0] // LATEST_ENTRY_SIZE
        cdef int64_t end
        if entry < 0 or entry > count or entries.shape[0] % LATEST_ENTRY_SIZE:
            raise ValueError("entries are whole, and there is such an entry")
        while entry < count and self.count < self.count_max:
            end = min(count, entry + self.make_room(count - entry))
            with nogil:
                entry = self.load_some(&entries[0], entry, end)
        return entry

    cdef int64_t load_some(self, Cursor entries, int64_t entry, int64_t end) noexcept nogil:
        cdef Newest* table = <Newest*>self.block.data
        cdef Newest next
        cdef int64_t ahead
        while entry < end:
            ahead = min(entry + LATEST_STRIDE // 4, end - 1)
            memcpy(&next, entries + ahead * LATEST_ENTRY_SIZE, LATEST_ENTRY_SIZE)
            prefetch_slot(table, self.slots, next.low)
            memcpy(&next, entries + entry * LATEST_ENTRY_SIZE, LATEST_ENTRY_SIZE)
            if next.offset >= 0:
                self.count += put_newest(table, self.slots, next.high, next.low, next.offset)
            entry += 1
        return entry

    cdef int64_t make_room(self, int64_t wanted) except -1:
        """So many keys more fit now: as many as are wanted, or what is left of a table of full size."""
        cdef int64_t room
        if self.block.data == NULL:
            self.new_table(&self.block, self.slots)
        room = self.slots // 4 * 3 - self.count
        if room < wanted and self.slots < self.slots_max and room < self.slots // 4:
            self.grow_table()
            room = self.slots // 4 * 3 - self.count
        return min(room, wanted)

    cdef int new_table(self, Block* block, int64_t slots) except -1:
        block.data = NULL
        block.capacity = 0
        block.usual = 0
        if not grow(block, slots * LATEST_ENTRY_SIZE):
            raise MemoryError
        with nogil:
            stratalog_expect_random_access(block.data, slots * LATEST_ENTRY_SIZE)
            memset(block.data, 0xFF, slots * LATEST_ENTRY_SIZE)
        return 0

    cdef int grow_table(self) except -1:
        cdef Block larger
        cdef int64_t slots = self.slots_max
        cdef int64_t i
        cdef const Newest* old = <const Newest*>self.block.data
        while slots // 4 > self.slots:
            slots //= 4
        self.new_table(&larger, slots)
        with nogil:
            for i in range(self.slots):
                if old[i].offset >= 0:
                    put_newest(<Newest*>larger.data, slots, old[i].high, old[i].low, old[i].offset)
            free(self.block.data)
        self.block = larger
        self.slots = slots
        return 0

    def spill(self, int level):
        """Take all entries out, in 32 parts by five bits of their digests, the first bits at level 0.
        Answers the entries and the 33 entries at which parts begin or end."""
        cdef int64_t starts[LATEST_FANOUT + 1]
        if level < 0 or level > LATEST_LEVEL_MAX:
            raise ValueError("a digest has bits for levels 0 to 11")
        with nogil:
            self.divide(level, starts)
        arena = self.hand_out(self.count * LATEST_ENTRY_SIZE)
        return arena, [starts[part] for part in range(LATEST_FANOUT + 1)]

    cdef void divide(self, int level, int64_t* starts) noexcept nogil:
        """All entries to the front of the table, part by part."""
        cdef Newest* table = <Newest*>self.block.data
        cdef int64_t next[LATEST_FANOUT]
        cdef Newest held
        cdef int64_t i, dense = 0
        cdef int part, other
        cdef int shift = 64 - LATEST_FANOUT_BITS * (level + 1)
        memset(starts, 0, (LATEST_FANOUT + 1) * 8)
        for i in range(self.slots if table != NULL else 0):
            if table[i].offset >= 0:
                table[dense] = table[i]
                dense += 1
                starts[1 + ((table[dense - 1].high >> shift) & (LATEST_FANOUT - 1))] += 1
        for part in range(LATEST_FANOUT):
            next[part] = starts[part]
            starts[part + 1] += starts[part]
        for part in range(LATEST_FANOUT):
            while next[part] < starts[part + 1]:
                held = table[next[part]]
                other = (held.high >> shift) & (LATEST_FANOUT - 1)
                table[next[part]] = table[next[other]]  # itself, where it is in its place
                table[next[other]] = held
                next[other] += 1

    def take_offsets(self):
        """Take the newest offsets of all keys out, in order, as 64-bit integers."""
        with nogil:
            self.gather()
        return self.hand_out(self.count * 8)

    cdef void gather(self) noexcept nogil:
        cdef const Newest* table = <const Newest*>self.block.data
        cdef int64_t* offsets = <int64_t*>self.block.data
        cdef int64_t i, offset, dense = 0
        for i in range(self.slots if table != NULL else 0):
            offset = table[i].offset
            if offset >= 0:
                offsets[dense] = offset
                dense += 1
        # A table has room for three times its entries' offsets: what sorts them fits behind them.
        sort_numbers(offsets, offsets + dense, dense)

    cdef Arena hand_out(self, int64_t size):
        cdef Arena arena = Arena.__new__(Arena)
        cdef uint8_t* data = NULL
        if self.block.data != NULL:
            data = <uint8_t*>realloc(self.block.data, size + BLOCK_SLACK)
        if data != NULL:
            self.block.data = data
            self.block.capacity = size
        arena.block = self.block
        arena.size = size if self.block.data != NULL else 0
        self.block.data = NULL
        self.block.capacity = 0
        self.count = 0
        return arena
