# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=False
"""The compiled kernel: the loops that touch every byte or every record, and nothing else.

Each function here has a twin of the same name in ``_reference``, which says what it must do; a
property test holds the two together. Rules of the house: no read without a ``limit``, one call for a
region or a batch, the GIL released for the work, wire grammar above the function that reads it.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython cimport array
from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE, PyByteArray_Resize,
)
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from stratalog.records._layout cimport *

cdef extern from "_crc.h" nogil:
    int stratalog_crc_init(int allow_hardware)
    uint32_t stratalog_crc32c(uint32_t crc, const uint8_t* data, size_t size)
    uint32_t stratalog_crc32(uint32_t crc, const uint8_t* data, size_t size)

cdef extern from "_guard.h" nogil:
    int stratalog_guarded(const uint8_t* start, size_t size, void (*work)(void*) noexcept nogil,
                          void* argument)

cdef extern from "_md5.h" nogil:
    enum:
        MD5_LANES "STRATALOG_MD5_LANES"
    void stratalog_md5_some(const uint8_t** data, const int64_t* sizes, int count, uint8_t* digests)

ctypedef const uint8_t* Cursor

cdef enum:
    GOES_ON = -1  # a header was read: no ending yet
    NO_MEMORY = -2  # in the place of a reason
    BLOCK_SLACK = 64  # bytes behind every block, so that a copy may overshoot
    POOLED_BLOCKS_MAX = 48
    SHORT_WORK = 32 * 1024  # bytes: below that, handing the GIL over costs more than it gives others

cdef extern from *:
    """
    #define MICROSECONDS_MAX_MS INT64_C(9223372036854775)  /* the last that fits in microseconds */
    """
    const int64_t INT32_MAX
    const int64_t INT64_MAX
    const int64_t MICROSECONDS_MAX_MS

NAME = "compiled"
HARDWARE_CRC = bool(stratalog_crc_init(1))


def use_hardware_crc(bint allowed):
    """For tests: choose between the CRC instruction and the tables; tells which is in use."""
    global HARDWARE_CRC
    HARDWARE_CRC = bool(stratalog_crc_init(allowed))
    return HARDWARE_CRC


def crc32c(const uint8_t[::1] data not None, uint32_t value=0):
    """CRC-32C (Castagnoli) of ``data``, continued from ``value``."""
    cdef size_t size = data.shape[0]
    if size:
        with nogil:
            value = stratalog_crc32c(value, &data[0], size)
    return value


def crc32(const uint8_t[::1] data not None, uint32_t value=0):
    """CRC-32 (IEEE) of ``data``, continued from ``value``."""
    cdef size_t size = data.shape[0]
    if size:
        with nogil:
            value = stratalog_crc32(value, &data[0], size)
    return value


# One module, so that the compiler sees through it; several files, so that people do.
include "_kernel_cursor.pxi"
include "_kernel_headers.pxi"
include "_kernel_memory.pxi"
include "_kernel_sink.pxi"
include "_kernel_decode.pxi"
include "_kernel_v07.pxi"
include "_kernel_columns.pxi"
include "_kernel_encode.pxi"
include "_kernel_hash.pxi"
include "_kernel_latest.pxi"
include "_kernel_check.pxi"
include "_kernel_search.pxi"
include "_kernel_index.pxi"
include "_kernel_entries.pxi"
include "_kernel_lookup.pxi"
include "_kernel_keyed.pxi"
include "_kernel_offset_map.pxi"
include "_kernel_digests.pxi"
include "_kernel_rebuild.pxi"
include "_kernel_filter.pxi"
