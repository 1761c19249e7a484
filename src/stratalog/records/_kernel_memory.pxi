# Memory of columns: blocks that grow, are handed out as buffers, and come back when nobody holds
# them any more, so that a long scan works in memory that is already mapped and warm.

cdef struct Block:
    uint8_t* data
    size_t capacity
    size_t usual  # what it takes in the long run: allocated at once, touched as it is used


cdef bint grow(Block* block, int64_t at_least) noexcept nogil:
    cdef size_t wanted = <size_t>at_least
    cdef size_t capacity = block.capacity * 2 if block.capacity else block.usual
    cdef uint8_t* data
    if at_least < 0 or at_least > INT64_MAX // 4:
        return False
    if wanted <= block.capacity:
        return True
    if capacity < wanted:
        capacity = wanted
    data = <uint8_t*>realloc(block.data, capacity + BLOCK_SLACK)
    if data == NULL:
        return False
    block.data = data
    block.capacity = capacity
    return True


cdef class Pool:
    """Blocks that came back, kept up to a number and a total size."""

    cdef Block blocks[POOLED_BLOCKS_MAX]
    cdef int held
    cdef size_t held_bytes
    cdef size_t bytes_max

    def __cinit__(self, size_t bytes_max):
        self.bytes_max = bytes_max

    def __dealloc__(self):
        for i in range(self.held):
            free(self.blocks[i].data)

    cdef Block get(self, size_t usual) noexcept:
        # The smallest that fits and is not far too large; else none, and the first growth allocates.
        cdef int i, best = -1
        cdef Block block
        block.data = NULL
        block.capacity = 0
        block.usual = usual
        for i in range(self.held):
            if usual <= self.blocks[i].capacity <= 2 * usual and (
                    best < 0 or self.blocks[i].capacity < self.blocks[best].capacity):
                best = i
        if best >= 0:
            block = self.remove(best)
            block.usual = usual
        return block

    cdef void put(self, Block block) noexcept:
        if block.data == NULL:
            return
        if block.capacity > self.bytes_max:
            free(block.data)
            return
        # What came back last is the warmest, and of the size that is wanted now: the oldest goes.
        while self.held == POOLED_BLOCKS_MAX or self.held_bytes + block.capacity > self.bytes_max:
            free(self.remove(0).data)
        self.blocks[self.held] = block
        self.held += 1
        self.held_bytes += block.capacity

    cdef Block remove(self, int at) noexcept:
        cdef Block block = self.blocks[at]
        cdef int i
        self.held -= 1
        self.held_bytes -= block.capacity
        for i in range(at, self.held):
            self.blocks[i] = self.blocks[i + 1]
        return block


cdef Pool POOL = Pool(32 << 20)  # one for the process: the next scan finds warm memory too


@cython.final
@cython.no_gc
cdef class Arena:
    """A finished block as a read-only buffer; its memory goes back to the pool with it."""

    cdef Block block
    cdef Py_ssize_t size

    def __dealloc__(self):
        POOL.put(self.block)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        cdef void* data = self.block.data if self.block.data != NULL else <void*><char*>b""
        PyBuffer_FillInfo(buffer, self, data, self.size, 1, flags)
