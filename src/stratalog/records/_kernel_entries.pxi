# The entries of a segment's indexes held against its batches, by their header rows.

cdef struct Entries:
    Cursor offsets
    int64_t offset_count
    Cursor times
    int64_t time_count
    const void* rows
    int64_t at
    int64_t count
    int64_t* state
    int stop


cdef inline bint offset_entry_fits(const int64_t* row, int64_t offset, const int64_t* state) noexcept nogil:
    """Whether an entry that points to this batch has an offset that leads there: no batch before it
    reaches that offset, and the entry before it does not reach this batch."""
    if offset < state[MATCH_BASE_OFFSET] or offset <= state[MATCH_ENTRY_OFFSET]:
        return False
    if row[ROW_BASE_OFFSET] < 0:  # a wrapper: only its last offset is known
        return offset > state[MATCH_LAST_OFFSET]
    return offset >= row[ROW_BASE_OFFSET] and state[MATCH_ENTRY_OFFSET] < row[ROW_BASE_OFFSET]


cdef int match_offset_entry(Entries* e, const int64_t* row) noexcept nogil:
    cdef int64_t* state = e.state
    cdef int64_t position = wrapping_add(row[ROW_POSITION], state[MATCH_POSITION_BASE])
    cdef int64_t slot = state[MATCH_OFFSET_SLOT], offset
    cdef Cursor entry = e.offsets + slot * OFFSET_ENTRY_SIZE
    if slot >= e.offset_count or get32(entry + 4) > position:
        return STOP_DONE
    offset = wrapping_add(state[MATCH_BASE_OFFSET], get32(entry))
    if get32(entry + 4) < position or not offset_entry_fits(row, offset, state):
        return STOP_OFFSET_ENTRY
    state[MATCH_ENTRY_OFFSET] = offset
    state[MATCH_OFFSET_SLOT] = slot + 1
    return STOP_DONE


cdef int match_time_entry(Entries* e, const int64_t* row) noexcept nogil:
    """The first entry whose offset reaches this batch must have its time, or a later one."""
    cdef int64_t* state = e.state
    cdef int64_t slot = state[MATCH_TIME_SLOT]
    cdef Cursor entry = e.times + slot * TIME_ENTRY_SIZE
    while (slot < e.time_count and wrapping_add(state[MATCH_BASE_OFFSET], get32(entry + 8))
            < row[ROW_LAST_OFFSET]):
        slot += 1
        entry += TIME_ENTRY_SIZE
        state[MATCH_TIME_SLOT] = slot
        if slot < e.time_count and (
                get64(entry) <= get64(entry - TIME_ENTRY_SIZE)
                or get32(entry + 8) < get32(entry + 8 - TIME_ENTRY_SIZE)):
            return STOP_TIME_ENTRY
    if slot < e.time_count and row[ROW_MAX_TIMESTAMP] > get64(entry):
        return STOP_TIME_ENTRY
    return STOP_DONE


cdef void match_rows(void* argument) noexcept nogil:
    cdef Entries* e = <Entries*>argument
    cdef int64_t* state = e.state
    cdef int64_t row[ROW_WIDTH]
    cdef int64_t before, span
    while e.at < e.count:
        memcpy(row, <Cursor>e.rows + e.at * sizeof(row), sizeof(row))
        if (row[ROW_MAGIC] == 2 and row[ROW_LEADER_EPOCH] >= 0
                and row[ROW_LEADER_EPOCH] != state[MATCH_LEADER_EPOCH]):
            e.stop = STOP_LEADER_EPOCH
            return
        e.stop = match_offset_entry(e, row)
        if e.stop == STOP_DONE:
            e.stop = match_time_entry(e, row)
        if e.stop != STOP_DONE:
            return
        if row[ROW_MAGIC] == 0:
            state[MATCH_HAS_UNTIMED] = 1
        if row[ROW_MAGIC] == 2 and row[ROW_ATTRIBUTES] & DELETE_HORIZON_MASK:
            state[MATCH_HAS_HORIZON] = 1
        if row[ROW_MAX_TIMESTAMP] > state[MATCH_MAX_TIMESTAMP]:
            state[MATCH_MAX_TIMESTAMP] = row[ROW_MAX_TIMESTAMP]
        # Of a wrapper only the last offset is known: it begins after the batch before it.
        before = row[ROW_BASE_OFFSET] - 1 if row[ROW_BASE_OFFSET] >= 0 else state[MATCH_LAST_OFFSET]
        span = wrapping_subtract(row[ROW_LAST_OFFSET], before) if before >= -1 else 1
        if span > state[MATCH_WIDEST]:
            state[MATCH_WIDEST] = span
        state[MATCH_LAST_OFFSET] = row[ROW_LAST_OFFSET]
        e.at += 1
        if row[ROW_MAGIC] == 2 and row[ROW_ATTRIBUTES] & CONTROL_MASK:
            e.stop = STOP_CONTROL
            return


def match_entries(rows, int64_t at, int64_t count, state, offset_entries, time_entries):
    """Hold the entries of a segment's indexes against header rows ``at`` up to ``count``.

    ``state`` are the numbers of layout.MatchState and is brought forward. Answers (row, stop), a
    layout.MatchStop: DONE, and every row was taken; OFFSET_ENTRY or TIME_ENTRY, the entry at the
    state's slot contradicts this row, which was not taken; LEADER_EPOCH, this row is the first of
    an epoch that the state does not have, and was not taken; CONTROL, the row before is a control
    batch, and was taken.
    """
    cdef Py_buffer given
    cdef Py_buffer held
    cdef Py_buffer offsets
    cdef Py_buffer times
    cdef int64_t numbers[MATCH_STATE_WIDTH]
    cdef Entries e
    get_numbers(rows, &given, row_numbers(count), False)
    try:
        get_numbers(state, &held, MATCH_STATE_WIDTH, True)
        try:
            PyObject_GetBuffer(offset_entries, &offsets, PyBUF_SIMPLE)
            try:
                PyObject_GetBuffer(time_entries, &times, PyBUF_SIMPLE)
                try:
                    memcpy(numbers, held.buf, sizeof(numbers))
                    e.offsets = <Cursor>offsets.buf
                    e.offset_count = offsets.len // OFFSET_ENTRY_SIZE
                    e.times = <Cursor>times.buf
                    e.time_count = times.len // TIME_ENTRY_SIZE
                    e.rows = given.buf
                    e.at = at
                    e.count = count
                    e.state = numbers
                    e.stop = STOP_DONE
                    if at < 0 or numbers[MATCH_OFFSET_SLOT] < 0 or numbers[MATCH_TIME_SLOT] < 0:
                        raise ValueError("a row or an entry before the first")
                    perform_sized(match_rows, &e, <Cursor>given.buf, given.len, False,
                                  count * ROW_WIDTH * 8)
                    memcpy(held.buf, numbers, sizeof(numbers))
                finally:
                    PyBuffer_Release(&times)
            finally:
                PyBuffer_Release(&offsets)
        finally:
            PyBuffer_Release(&held)
    finally:
        PyBuffer_Release(&given)
    return e.at, e.stop
