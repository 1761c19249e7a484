# What stands beside a log: sparse indexes, made from header rows; which rows a replay of producers must
# see; where zeros end.

# Header rows and their like come as buffers of 64-bit integers, aligned or not.

cdef inline int64_t number_at(const void* numbers, int64_t at) noexcept nogil:
    cdef int64_t number
    memcpy(&number, <Cursor>numbers + 8 * at, 8)
    return number


cdef inline void set_number(void* numbers, int64_t at, int64_t number) noexcept nogil:
    memcpy(<uint8_t*>numbers + 8 * at, &number, 8)


cdef int get_numbers(object source, Py_buffer* view, int64_t least, bint writable) except -1:
    """The buffer of ``source``, to be released, where it holds ``least`` 64-bit integers."""
    PyObject_GetBuffer(source, view, PyBUF_ND | PyBUF_FORMAT)
    if (view.itemsize == 8 and (view.format[0] == c"q" or view.format[0] == c"l")
            and view.format[1] == 0 and 0 <= least <= view.len // 8
            and not (writable and view.readonly)):
        return 0
    PyBuffer_Release(view)
    raise ValueError(f"not a buffer of {least} 64-bit integers"
                     + (" that may be written" if writable else ""))


cdef inline int64_t row_numbers(int64_t count) noexcept nogil:
    return count * ROW_WIDTH if 0 <= count <= INT64_MAX // (8 * ROW_WIDTH) else -1


cdef enum:
    ENTRIES_AT_ONCE = 64


cdef struct IndexEntries:  # on their way into a bytearray
    int held
    uint8_t data[ENTRIES_AT_ONCE * TIME_ENTRY_SIZE]


cdef int hand_over(bytearray out, IndexEntries* entries, int entry_size) except -1:
    cdef Py_ssize_t at = PyByteArray_GET_SIZE(out)
    cdef Py_ssize_t size = entries.held * entry_size
    if size:
        PyByteArray_Resize(out, at + size)
        memcpy(PyByteArray_AS_STRING(out) + at, entries.data, size)
        entries.held = 0
    return 0


cdef inline bint relative(int64_t offset, int64_t base_offset, int64_t* difference) noexcept nogil:
    """The offset as an index stores it; whether it can."""
    if offset < base_offset:
        return False
    difference[0] = wrapping_subtract(offset, base_offset)
    return 0 <= difference[0] <= INT32_MAX  # below zero where it passed 64 bits


cdef int note_batch(const int64_t* row, int64_t* state, IndexEntries* offsets,
                    IndexEntries* times) noexcept nogil:
    """One batch, all of it or nothing; there is room for an entry of each kind.

    offset entry := int32 relative offset, int32 position
    time entry := int64 timestamp, int32 relative offset
    """
    cdef int64_t base_offset = state[STATE_BASE_OFFSET]
    cdef int64_t last_offset = row[ROW_LAST_OFFSET]
    cdef int64_t max_timestamp = state[STATE_MAX_TIMESTAMP]
    cdef int64_t max_offset = state[STATE_MAX_TIMESTAMP_OFFSET]
    cdef int64_t position = wrapping_add(row[ROW_POSITION], state[STATE_POSITION_BASE])
    cdef int64_t batch_offset = 0, time_offset = 0
    cdef uint8_t* out
    cdef bint is_due = state[STATE_BYTES_SINCE] > state[STATE_INTERVAL]
    cdef bint has_offset = is_due and state[STATE_OFFSET_SLOTS] > 0
    cdef bint has_time
    if row[ROW_MAX_TIMESTAMP] > max_timestamp:
        max_timestamp = row[ROW_MAX_TIMESTAMP]
        max_offset = last_offset
    has_time = is_due and state[STATE_TIME_SLOTS] > 0 and max_timestamp > state[STATE_LAST_TIME]
    if not relative(last_offset, base_offset, &batch_offset):
        return REASON_OFFSET_RANGE
    if (position < 0 or position > INT32_MAX
            or (row[ROW_POSITION] < 0 and state[STATE_POSITION_BASE] < 0)):
        return REASON_SIZE_TOO_LARGE
    if has_offset and last_offset <= state[STATE_LAST_OFFSET]:
        return REASON_OFFSET_ORDER
    if has_time:
        if not relative(max_offset, base_offset, &time_offset):
            return REASON_OFFSET_RANGE
        if max_offset < state[STATE_LAST_TIME_OFFSET]:
            return REASON_OFFSET_ORDER
    state[STATE_MAX_TIMESTAMP] = max_timestamp
    state[STATE_MAX_TIMESTAMP_OFFSET] = max_offset
    if has_offset:
        out = offsets.data + offsets.held * OFFSET_ENTRY_SIZE
        put32(put32(out, batch_offset), position)
        offsets.held += 1
        state[STATE_LAST_OFFSET] = last_offset
        state[STATE_OFFSET_SLOTS] -= 1
    if has_time:
        out = times.data + times.held * TIME_ENTRY_SIZE
        put32(put64(out, max_timestamp), time_offset)
        times.held += 1
        state[STATE_LAST_TIME] = max_timestamp
        state[STATE_LAST_TIME_OFFSET] = max_offset
        state[STATE_TIME_SLOTS] -= 1
    if is_due:
        state[STATE_BYTES_SINCE] = 0
    state[STATE_BYTES_SINCE] = wrapping_add(state[STATE_BYTES_SINCE], row[ROW_SIZE])
    return REASON_NONE


def note_batches(rows, int64_t count, state, bytearray offset_out not None,
                 bytearray time_out not None):
    """Append to two bytearrays the index entries that ``count`` batches call for, by their header rows.

    ``state`` are the numbers of layout.IndexState and is brought forward. Answers (rows noted,
    reason): it stops before a row that no index can hold, and tells why.
    """
    cdef Py_buffer given
    cdef Py_buffer held
    cdef int64_t numbers[INDEX_STATE_WIDTH]
    cdef int64_t row[ROW_WIDTH]
    cdef IndexEntries offsets, times
    cdef int64_t done = 0
    cdef int reason = REASON_NONE
    get_numbers(rows, &given, row_numbers(count), False)
    try:
        get_numbers(state, &held, INDEX_STATE_WIDTH, True)
        try:
            memcpy(numbers, held.buf, sizeof(numbers))
            offsets.held = times.held = 0
            while done < count:
                memcpy(row, <Cursor>given.buf + done * sizeof(row), sizeof(row))
                reason = note_batch(row, numbers, &offsets, &times)
                if reason != REASON_NONE:
                    break
                done += 1
                if offsets.held == ENTRIES_AT_ONCE:
                    hand_over(offset_out, &offsets, OFFSET_ENTRY_SIZE)
                if times.held == ENTRIES_AT_ONCE:
                    hand_over(time_out, &times, TIME_ENTRY_SIZE)
            hand_over(offset_out, &offsets, OFFSET_ENTRY_SIZE)
            hand_over(time_out, &times, TIME_ENTRY_SIZE)
            memcpy(held.buf, numbers, sizeof(numbers))
        finally:
            PyBuffer_Release(&held)
    finally:
        PyBuffer_Release(&given)
    return done, reason


cdef enum:
    HEADS = 2 * REPLAY_PRODUCERS_MAX  # a power of two, and never more than half full


cdef struct Run:  # the rows of one producer since its epoch, its transactional bit or a marker changed
    int64_t producer_id
    int64_t producer_epoch
    bint is_transactional
    int64_t length
    int64_t recent[REMEMBERED_BATCHES]  # the last rows, without the first of the run


cdef struct Runs:
    int held
    uint16_t heads[HEADS]  # where in runs a producer is, plus one; 0 for none
    Run runs[REPLAY_PRODUCERS_MAX]


cdef Run* find_run(Runs* r, int64_t producer_id, bint add) noexcept nogil:
    """The producer's run; where it has none, a new one of no rows, or NULL when the table is full."""
    cdef uint64_t at = (<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15) >> 40 & (HEADS - 1)
    cdef Run* run
    while r.heads[at]:
        run = &r.runs[r.heads[at] - 1]
        if run.producer_id == producer_id:
            return run
        at = (at + 1) & (HEADS - 1)
    if not add or r.held == REPLAY_PRODUCERS_MAX:
        return NULL
    run = &r.runs[r.held]
    r.held += 1
    r.heads[at] = <uint16_t>r.held
    run.producer_id = producer_id
    run.length = 0
    return run


cdef struct Replay:
    Runs* runs
    const void* rows
    int64_t count
    void* keep
    int64_t kept


cdef inline void lengthen(Run* run, int64_t row, int64_t producer_epoch, bint is_transactional,
                          void* keep) noexcept nogil:
    """One more row of a producer: the fifth before it is not wanted any more, unless it is the first."""
    cdef int64_t slot
    if (run.length == 0 or run.producer_epoch != producer_epoch
            or run.is_transactional != is_transactional):
        run.producer_epoch = producer_epoch
        run.is_transactional = is_transactional
        run.length = 1
        return
    slot = (run.length - 1) % REMEMBERED_BATCHES
    if run.length > REMEMBERED_BATCHES:
        set_number(keep, run.recent[slot], 0)
    run.recent[slot] = row
    run.length += 1


cdef void choose_rows(void* argument) noexcept nogil:
    cdef Replay* r = <Replay*>argument
    cdef int64_t row, at, attributes, producer_id
    cdef bint wanted
    cdef Run* run
    # First a mark for every row, then in their place the numbers of the marked ones.
    for row in range(r.count):
        at = row * ROW_WIDTH
        attributes = number_at(r.rows, at + ROW_ATTRIBUTES)
        if number_at(r.rows, at + ROW_MAGIC) != 2:
            attributes = 0
        producer_id = number_at(r.rows, at + ROW_PRODUCER_ID)
        wanted = attributes & CONTROL_MASK != 0 or producer_id >= 0
        set_number(r.keep, row, wanted)
        if producer_id < 0:
            continue
        if attributes & CONTROL_MASK:
            run = find_run(r.runs, producer_id, False)
            if run != NULL:
                run.length = 0
            continue
        run = find_run(r.runs, producer_id, True)
        if run != NULL:
            lengthen(run, row, number_at(r.rows, at + ROW_PRODUCER_EPOCH),
                     attributes & TRANSACTIONAL_MASK != 0, r.keep)
    r.kept = 0
    for row in range(r.count):
        if number_at(r.keep, row):
            set_number(r.keep, r.kept, row)
            r.kept += 1


def replay_rows(rows, int64_t count, keep):
    """Write into ``keep`` the numbers of the header rows that decide the state of producers: how many.

    Those are the rows of markers, and of every run the first and the last five. A run are the rows of
    one producer with one epoch and one transactional bit, other producers' rows left out, up to a
    control row of its own. After REPLAY_PRODUCERS_MAX producers the rows of others are all kept.
    ``keep`` has room for ``count`` numbers; what stands behind those that count is not defined.
    Give only the rows that are to be replayed: one that is skipped afterwards may be its run's first.
    """
    cdef Py_buffer given
    cdef Py_buffer kept
    cdef Replay r
    get_numbers(rows, &given, row_numbers(count), False)
    try:
        get_numbers(keep, &kept, count, True)
        try:
            r.runs = <Runs*>malloc(sizeof(Runs))
            if r.runs == NULL:
                raise MemoryError
            r.runs.held = 0
            memset(r.runs.heads, 0, sizeof(r.runs.heads))
            r.rows = given.buf
            r.count = count
            r.keep = kept.buf
            try:
                perform_sized(choose_rows, &r, <Cursor>given.buf, given.len, False,
                              count * ROW_WIDTH * 8)
            finally:
                free(r.runs)
        finally:
            PyBuffer_Release(&kept)
    finally:
        PyBuffer_Release(&given)
    return r.kept


cdef struct ZeroRun:
    Cursor p
    Cursor limit


cdef void pass_zeros(void* argument) noexcept nogil:
    cdef ZeroRun* z = <ZeroRun*>argument
    z.p = first_nonzero(z.p, z.limit)


def zero_run(data, Py_ssize_t start, Py_ssize_t end, *, bint guarded=False):
    """The position of the first byte of ``data[start:end]`` that is not zero, or ``end``."""
    cdef Py_buffer view
    cdef ZeroRun z
    cdef Cursor base
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        base = buffer_start(&view, start, end)
        z.p = base + start
        z.limit = base + end
        perform_sized(pass_zeros, &z, base, end, guarded, end - start)
    finally:
        PyBuffer_Release(&view)
    return z.p - base
