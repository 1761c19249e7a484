# Batches without the records that a rewrite removes: those that compaction finds superseded, or that are to be
# erased. Offsets stay; a batch that loses nothing is copied byte for byte.

cdef enum:
    LAST_BATCH_WIDTH = 2
    EVENT_WIDTH = 2
    ASK_MAP = -1  # in the place of a FilterCount: the map of keys tells


cdef struct Filter:
    const Table* table  # newest offsets (compaction) or keys to erase; NULL: there are none
    bint erases
    int64_t latest  # compaction: records above it were not noted, and are kept
    const int64_t* drop  # offsets to remove, in order …
    int64_t drop_count  # … so many of them …
    int64_t drop_at  # … and the first that lies at or above the last record looked at
    int64_t now
    int64_t delete_retention
    int flags
    int64_t size_max
    int64_t expected
    int64_t below
    const int64_t* aborted
    int64_t aborted_count
    bint keeps_legacy_deletes
    int64_t round_end  # the batch that ends here is kept, if only its header; -1: there is none
    const int64_t* last_batches  # last offset and producer id of batches to keep likewise, in order
    int64_t last_batches_count
    Block out
    int64_t used
    int64_t used_max
    Block keep  # of the batch at hand: a byte for each record, 1 to keep it
    int64_t kept
    bint keeps_tombstone
    bint keeps_foreign  # a message of another magic than its wrapper
    int64_t events[FILTER_EVENTS_MAX * EVENT_WIDTH]  # producer id, whether its batch was discarded
    int events_held
    int64_t counts[FILTER_COUNTS]


cdef struct FilterMark:  # what is taken back if a batch turns out to be wrong, or a mapping is lost
    int64_t used
    int64_t expected
    int events_held
    int64_t counts[FILTER_COUNTS]


cdef inline FilterMark mark_filter(const Filter* f) noexcept nogil:
    cdef FilterMark m
    m.used = f.used
    m.expected = f.expected
    m.events_held = f.events_held
    memcpy(m.counts, f.counts, sizeof(m.counts))
    return m


cdef void rewind_filter(Filter* f, const FilterMark* m) noexcept nogil:
    f.used = m.used
    f.expected = m.expected
    f.events_held = m.events_held
    memcpy(f.counts, m.counts, sizeof(m.counts))


cdef int64_t first_from(const int64_t* numbers, int64_t count, int width, int64_t least) noexcept nogil:
    """The first entry of ``width`` numbers whose first number is not below ``least``."""
    cdef int64_t low = 0, high = count, middle
    while low < high:
        middle = low + (high - low) // 2
        if numbers[middle * width] < least:
            low = middle + 1
        else:
            high = middle
    return low


cdef bint is_last_of_producer(const Filter* f, const Header* h) noexcept nogil:
    cdef int64_t at
    if h.producer_id < 0:
        return False
    at = first_from(f.last_batches, f.last_batches_count, LAST_BATCH_WIDTH, h.last_offset)
    while at < f.last_batches_count and f.last_batches[at * LAST_BATCH_WIDTH] == h.last_offset:
        if f.last_batches[at * LAST_BATCH_WIDTH + 1] == h.producer_id:
            return True
        at += 1
    return False


cdef inline bint is_dropped(Filter* f, int64_t offset) noexcept nogil:
    if f.drop_count == 0:
        return False
    if f.drop_at and f.drop[f.drop_at - 1] >= offset:
        f.drop_at = first_from(f.drop, f.drop_count, 1, offset)
    while f.drop_at < f.drop_count and f.drop[f.drop_at] < offset:
        f.drop_at += 1
    return f.drop_at < f.drop_count and f.drop[f.drop_at] == offset


cdef inline bint keeps_deletes(const Filter* f, const Header* h) noexcept nogil:
    """Whether tombstones of this batch may not be removed yet."""
    if h.magic < 2:
        return f.keeps_legacy_deletes
    return h.attributes & DELETE_HORIZON_MASK == 0 or f.now < h.base_timestamp


cdef inline int judge_record(Filter* f, const KeyedRecord* record) noexcept nogil:
    """What becomes of a record, as the FilterCount that it adds to; ASK_MAP if its key decides."""
    if is_dropped(f, record.offset):
        return FILTER_ERASED if f.erases else FILTER_SUPERSEDED
    if f.erases:
        return FILTER_KEPT if record.key_size < 0 or f.table == NULL else ASK_MAP
    if record.offset > f.latest:
        return FILTER_KEPT
    return FILTER_NULL_KEYS if record.key_size < 0 else ASK_MAP


cdef inline int judge_key(const Filter* f, int64_t offset, uint64_t newest_plus_one,
                          bint is_expired) noexcept nogil:
    """What becomes of a record whose key has this newest offset in the map, 0: none."""
    if f.erases:
        return FILTER_ERASED if newest_plus_one else FILTER_KEPT
    if <uint64_t>offset + 1 < newest_plus_one:
        return FILTER_SUPERSEDED
    return FILTER_EXPIRED if is_expired else FILTER_KEPT


cdef inline void count_record(Filter* f, int verdict, int64_t row, bint is_tombstone) noexcept nogil:
    f.counts[verdict] += 1
    if verdict == FILTER_KEPT:
        f.keep.data[row] = 1
        f.kept += 1
        f.keeps_tombstone |= is_tombstone


cdef struct Waiting:  # records whose keys are looked up together
    Keys keys
    int64_t rows[KEYS_AT_ONCE]
    bint tombstones[KEYS_AT_ONCE]


cdef void judge_waiting(Filter* f, Waiting* w, bint expires) noexcept nogil:
    cdef int i
    if f.table != NULL:
        find_keys(f.table, &w.keys)
    for i in range(w.keys.held):
        count_record(f, judge_key(f, w.keys.offsets[i],
                                  w.keys.digests[i].offset_plus_one if f.table != NULL else 0,
                                  expires and w.tombstones[i]),
                     w.rows[i], w.tombstones[i])
    w.keys.held = 0


cdef int judge_payload(Filter* f, Header* h, Cursor payload, Cursor limit) noexcept nogil:
    """Decide which records of a batch, message or wrapper are kept."""
    cdef KeyedReader reader
    cdef KeyedRecord record
    cdef Waiting waiting
    cdef bint expires = not keeps_deletes(f, h)
    cdef bint keeps_all = is_control(h)
    cdef bint is_tombstone
    cdef int64_t row = -1
    cdef int verdict
    cdef int reason = open_reader(&reader, h, payload, limit, f.flags, f.expected)
    if reason != REASON_NONE:
        return reason
    if not grow(&f.keep, h.count):
        return NO_MEMORY
    if h.count:
        memset(f.keep.data, 0, h.count)
    waiting.keys.held = 0
    while next_record(&reader, &record):
        row += 1
        is_tombstone = record.value_size < 0
        f.keeps_foreign |= record.magic != h.magic
        verdict = FILTER_KEPT if keeps_all else judge_record(f, &record)
        if verdict != ASK_MAP:
            count_record(f, verdict, row, is_tombstone)
            continue
        waiting.rows[waiting.keys.held] = row
        waiting.tombstones[waiting.keys.held] = is_tombstone
        add_key(&waiting.keys, &record)
        if waiting.keys.held == KEYS_AT_ONCE:
            judge_waiting(f, &waiting, expires)
    judge_waiting(f, &waiting, expires)
    return reader.reason


cdef int put_bytes(Filter* f, Cursor data, int64_t size) noexcept nogil:
    if not grow(&f.out, f.used + size):
        return NO_MEMORY
    memcpy(f.out.data + f.used, data, size)
    f.used += size
    return REASON_NONE


cdef int put_empty(Filter* f, const Header* h) noexcept nogil:
    """Keep only the header of a batch: its offsets, producer and times."""
    cdef Header empty = h[0]
    if not grow(&f.out, f.used + BATCH_HEADER_SIZE):
        return NO_MEMORY
    empty.attributes = h.attributes & (APPEND_TIME_MASK | TRANSACTIONAL_MASK | CONTROL_MASK)
    empty.base_timestamp = -1
    empty.count = 0
    write_header(f.out.data + f.used, &empty, BATCH_HEADER_SIZE)
    f.used += BATCH_HEADER_SIZE
    f.counts[FILTER_EMPTIED] += 1
    return REASON_NONE


cdef int put_nothing(Filter* f, const Header* h, bint keeps_header) noexcept nogil:
    """Leave a batch out, but for its header where that says something that must not be lost."""
    if h.magic == 2 and (keeps_header or is_last_of_producer(f, h)
                         or (f.round_end >= 0 and after(h) == f.round_end)):
        return put_empty(f, h)
    f.counts[FILTER_REMOVED] += 1
    return REASON_NONE


cdef int discard_batch(Filter* f, const Header* h, bint keeps_header) noexcept nogil:
    """Remove all records of a batch without looking at them."""
    cdef int64_t count = h.count if h.count > 0 else 0  # of a wrapper, only its contents tell
    f.counts[FILTER_RECORDS] += count
    f.counts[FILTER_MARKERS if is_control(h) else FILTER_ABORTED] += count
    return put_nothing(f, h, keeps_header)


cdef void note_event(Filter* f, const Header* h, bint is_discarded) noexcept nogil:
    """Remember a transactional batch for the caller. Batches of one producer in a row are one event."""
    cdef int at = EVENT_WIDTH * f.events_held
    if f.erases or h.magic != 2 or not h.attributes & TRANSACTIONAL_MASK or is_control(h):
        return
    if at and f.events[at - EVENT_WIDTH] == h.producer_id and f.events[at - 1] == is_discarded:
        return
    f.events[at] = h.producer_id
    f.events[at + 1] = is_discarded
    f.events_held += 1


cdef inline bint has_room(const Filter* f) noexcept nogil:
    return f.used < f.used_max and f.events_held < FILTER_EVENTS_MAX


cdef int64_t new_horizon(const Filter* f, const Header* h, bint is_marker_of_none) noexcept nogil:
    """The delete horizon that a batch gets which keeps records; -1 if it gets none. One that does not fit 64
    bits is none, as in Kafka: such tombstones stay."""
    if (f.erases or h.magic < 2 or h.attributes & DELETE_HORIZON_MASK
            or not (f.keeps_tombstone or is_marker_of_none)):
        return -1
    return max(-1, wrapping_add(f.now, f.delete_retention))


cdef int rebuild_batch(Filter* f, Header* h, Cursor payload, Cursor limit, int64_t horizon, Block* apart,
                       Rebuilding* r, int64_t* written) noexcept nogil:
    """Put the records that are kept into the output; those of a compressed batch into ``apart``."""
    cdef int64_t at = 0 if apart != NULL else f.used + BATCH_HEADER_SIZE
    cdef Block* out = apart if apart != NULL else &f.out
    start_rebuilding(r, h, f.keep.data, f.kept, horizon)
    if h.magic < 2:
        written[0] = rebuild_messages(r, h, payload, limit, out)
    else:
        written[0] = rebuild_records(r, h, payload, limit, out, at)
    if written[0] < 0 or written[0] > INT32_MAX - BATCH_HEADER_SIZE:
        return NO_MEMORY
    if apart == NULL:
        write_header(out.data + f.used, &r.new, BATCH_HEADER_SIZE + written[0])
        f.used += BATCH_HEADER_SIZE + written[0]
    return REASON_NONE


cdef int filter_records(Filter* f, Header* h, Cursor payload, Cursor limit, bint keeps_header,
                        bint is_marker_of_none, Block* apart, Rebuilding* r, int64_t* written) noexcept nogil:
    """Put a batch into the output, or leave it out. ``apart`` is given for one that was compressed: its
    records go there if some of them are removed, and ``written`` says so."""
    cdef int64_t horizon
    cdef int reason
    written[0] = 0
    f.kept = 0
    f.keeps_tombstone = False
    f.keeps_foreign = False
    reason = judge_payload(f, h, payload, limit)
    if reason != REASON_NONE:
        return reason
    f.counts[FILTER_RECORDS] += h.count
    if f.kept == 0 and not (f.erases and h.count == 0):  # an erasure keeps what compaction emptied
        return put_nothing(f, h, keeps_header)
    horizon = new_horizon(f, h, is_marker_of_none)
    if f.kept == h.count and horizon < 0 and (f.erases or not f.keeps_foreign):
        f.counts[FILTER_COPIED] += 1
        return put_bytes(f, h.start, h.size)
    f.counts[FILTER_REBUILT] += 1
    return rebuild_batch(f, h, payload, limit, horizon, apart, r, written)


cdef struct Filtering:
    Filter* f
    Cursor base
    Cursor p
    Cursor end
    int ending
    int reason


cdef inline int check_below(const Filter* f, const Header* h) noexcept nogil:
    return REASON_OFFSET_ORDER if f.flags & CHECK_ORDER and 0 <= f.below <= h.last_offset else REASON_NONE


cdef inline int end_batch(Filter* f, const Header* h, const FilterMark* before, int reason) noexcept nogil:
    """Go on after a batch, or take back what it did."""
    if reason != REASON_NONE:
        rewind_filter(f, before)
        return ENDING_CORRUPT
    f.counts[FILTER_BATCHES] += 1
    f.expected = after(h)
    return ENDING_END


cdef void filter_region(void* argument) noexcept nogil:
    cdef Filtering* w = <Filtering*>argument
    cdef Filter* f = w.f
    cdef Header h
    cdef FilterMark before
    cdef Rebuilding r
    cdef int64_t written
    cdef bint is_discarded
    while True:
        w.ending = ENDING_FULL
        w.reason = REASON_NONE
        if not has_room(f):
            return
        w.ending = parse_header(w.p, w.end, f.size_max, &h, &w.reason)
        if w.ending != GOES_ON:
            return
        w.reason = check_header(&h, f.flags, f.expected)
        if w.reason == REASON_NONE:
            w.reason = check_below(f, &h)
        if w.reason != REASON_NONE:
            w.ending = ENDING_CORRUPT
            return
        if is_control(&h) and not f.erases:
            w.ending = ENDING_CONTROL
            return
        is_discarded = not f.erases and in_aborted(f.aborted, f.aborted_count, &h)
        if not is_discarded and h.codec != CODEC_NONE and h.payload_size:
            w.ending = ENDING_COMPRESSED
            return
        before = mark_filter(f)
        note_event(f, &h, is_discarded)
        if is_discarded:
            w.reason = discard_batch(f, &h, False)
        else:
            w.reason = filter_records(f, &h, h.payload, h.start + h.size, False, False, NULL, &r, &written)
        w.ending = end_batch(f, &h, &before, w.reason)
        if w.ending != ENDING_END:
            return
        w.p += h.size


cdef class BatchFilter:
    """Removes records from regions of a log, one region after the other, by the rules of Kafka's cleaner.

    Compaction: ``newest`` is the map of newest offsets; or, without one, ``drop`` are the offsets of
    superseded records, in order. Records above ``latest_offset`` (that of the map, unless it is given) are
    kept; of those up to it, the ones without a key are removed. Tombstones get a delete horizon,
    ``delete_retention`` after ``now``, and are removed when it has passed. Batches of aborted transactions are
    removed.

    With ``erases``, only records whose key is in ``newest`` or whose offset is in ``drop`` are removed.

    A batch that loses every record is removed, unless it ends at ``round_end``, or is one of
    ``last_batches`` (last offset, producer id; in order): then its header is kept.
    """

    cdef Filter f
    cdef OffsetMap newest
    cdef const int64_t[::1] dropped
    cdef const int64_t[::1] aborted
    cdef const int64_t[::1] last_batches

    def __cinit__(self, OffsetMap newest=None, *, drop=None, bint erases=False, latest_offset=None,
                  int64_t now=0, int64_t delete_retention=0, int flags=0,
                  int64_t size_max=0x7FFFFFFF, round_end=None, last_batches=None,
                  int64_t bytes_max=4 << 20):
        self.newest = newest
        self.f.erases = erases
        self.f.now = now
        self.f.delete_retention = delete_retention
        self.f.flags = flags
        self.f.size_max = size_max
        self.f.used_max = max(bytes_max, 1)
        self.f.expected = -1
        self.f.below = -1
        self.f.keeps_legacy_deletes = True
        self.f.round_end = -1 if round_end is None else round_end
        self.f.out = POOL.get(min(self.f.used_max, 16 << 20) * 5 // 4)
        self.f.latest = -1
        if newest is not None:
            self.f.table = &newest.table
            self.f.latest = newest.table.latest
        if latest_offset is not None:
            self.f.latest = latest_offset
        if drop is not None and len(drop):
            self.dropped = drop
            self.f.drop = &self.dropped[0]
            self.f.drop_count = self.dropped.shape[0]
        if last_batches is not None and len(last_batches):
            self.last_batches = last_batches
            self.f.last_batches = &self.last_batches[0]
            self.f.last_batches_count = self.last_batches.shape[0] // LAST_BATCH_WIDTH

    def __dealloc__(self):
        POOL.put(self.f.out)
        free(self.f.keep.data)

    def begin_segment(self, int64_t expected, below=None, *, aborted=None, bint keeps_legacy_deletes=True):
        """Say what the next regions are of: where their batches may lie, which transactions were aborted, and
        whether tombstones of magic 0 and 1 are kept."""
        self.f.expected = expected
        self.f.below = -1 if below is None else below
        self.f.keeps_legacy_deletes = keeps_legacy_deletes
        self.f.aborted_count = 0
        if aborted is not None and len(aborted):
            self.aborted = aborted
            self.f.aborted = &self.aborted[0]
            self.f.aborted_count = self.aborted.shape[0] // ABORTED_WIDTH

    @property
    def expected(self):
        """The offset that must come next, -1 for any."""
        return self.f.expected

    @property
    def used(self):
        """How many bytes stand in the output."""
        return self.f.used

    @property
    def counts(self):
        """What was done so far, in the order of layout.FilterCount."""
        return [self.f.counts[i] for i in range(FILTER_COUNTS)]

    def filter(self, const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit, *,
               bint guarded=False):
        """Filter batches from ``position`` on until something stops it.

        Returns (position reached, ending, reason). COMPRESSED: the batch there is sound as far as its header
        and CRC tell, and waits for filter_batch(). CONTROL: likewise, and what becomes of it is the caller's
        decision (compaction only). FULL: take() and take_events() first.
        """
        cdef Filtering w
        cdef FilterMark before = mark_filter(&self.f)
        w.f = &self.f
        w.base = region_start(data, position, limit)
        w.p = w.base + position
        w.end = w.base + limit
        try:
            with nogil:
                perform(filter_region, &w, w.base, limit, guarded)
        except BufferError:
            rewind_filter(&self.f, &before)
            raise
        if w.reason == NO_MEMORY:
            raise MemoryError
        return w.p - w.base, w.ending, w.reason

    def filter_batch(self, const uint8_t[::1] data not None, Py_ssize_t position, Py_ssize_t limit,
                     const uint8_t[::1] payload not None, *, bint discards=False,
                     bint keeps_header=False, bint is_marker_of_none=False):
        """Filter the batch at ``position``, whose records or messages are ``payload``: one that filter()
        stopped at, so its CRC is not checked again. Of a mapped file, give a copy() of the batch.

        ``discards``: all of its records are removed. ``keeps_header``: its header is kept even so.
        ``is_marker_of_none``: it ends a transaction that has no records any more.

        Returns (position after the batch, ending, reason, records, header). If ``records`` are not None, the
        caller compresses them, builds the batch (records.rebuild) and hands it to put(); ``header`` are its
        base offset, last offset, base timestamp, largest timestamp, record count and attributes.
        """
        cdef Cursor base = region_start(data, position, limit)
        cdef Cursor inside = region_start(payload, 0, payload.shape[0])
        cdef Cursor inside_end = inside + payload.shape[0]
        cdef Filter* f = &self.f
        cdef FilterMark before = mark_filter(f)
        cdef int ending, reason
        cdef int64_t written = 0
        cdef Header h
        cdef Rebuilding r
        cdef Block apart
        if f.events_held == FILTER_EVENTS_MAX:
            raise ValueError("no room for what this batch may add: take_events() first")
        apart.data = NULL
        apart.capacity = 0
        apart.usual = 0
        ending = parse_header(base + position, base + limit, f.size_max, &h, &reason)
        if ending != GOES_ON:
            return position, ending, reason, None, None
        try:
            with nogil:
                reason = check_place(&h, f.flags, f.expected)
                if reason == REASON_NONE:
                    reason = check_below(f, &h)
                if reason == REASON_NONE:
                    note_event(f, &h, discards)
                    if discards:
                        reason = discard_batch(f, &h, keeps_header)
                    else:
                        reason = filter_records(f, &h, inside, inside_end, keeps_header, is_marker_of_none,
                                                &apart if h.codec != CODEC_NONE else NULL, &r, &written)
                ending = end_batch(f, &h, &before, reason)
            if reason == NO_MEMORY:
                raise MemoryError
            if ending == ENDING_END:
                position += h.size
            if ending != ENDING_END or apart.data == NULL:
                return position, ending, reason, None, None
            return (position, ending, reason, PyBytes_FromStringAndSize(<char*>apart.data, written),
                    (r.new.base_offset, r.new.last_offset, r.new.base_timestamp, r.new.max_timestamp,
                     r.new.count, r.new.attributes))
        finally:
            free(apart.data)

    def put(self, const uint8_t[::1] data not None):
        """Append a batch to the output as it is."""
        if data.shape[0] and put_bytes(&self.f, &data[0], data.shape[0]) != REASON_NONE:
            raise MemoryError

    def take(self):
        """Hand over the output and begin a new one."""
        cdef Arena arena = Arena.__new__(Arena)
        arena.block = self.f.out
        arena.size = self.f.used
        self.f.out = POOL.get(arena.block.usual)
        self.f.used = 0
        return arena

    def take_events(self):
        """Hand over which producers had transactional batches since the last call, in order: pairs of
        producer id and whether the batches were discarded."""
        taken = [(self.f.events[EVENT_WIDTH * i], bool(self.f.events[EVENT_WIDTH * i + 1]))
                 for i in range(self.f.events_held)]
        self.f.events_held = 0
        return taken
