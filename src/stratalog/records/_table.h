/* What a large hash table needs of the machine: loads, prefetches and pages. Each does nothing, or the same
   more slowly, where the compiler or the system has none of it. */

#ifndef STRATALOG_TABLE_H
#define STRATALOG_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__GNUC__) || defined(__clang__)
#define stratalog_prefetch(address) __builtin_prefetch(address)
#else
#define stratalog_prefetch(address) ((void)(address))
#endif

static inline uint64_t stratalog_little64(const uint8_t* data) {
    uint64_t word;
    memcpy(&word, data, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Every look-up touches another page: with small ones, most of its time goes into finding the page. */
static inline void stratalog_expect_random_access(void* data, size_t size) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = (uintptr_t)1 << 12;
    uintptr_t start = ((uintptr_t)data + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)data + size) & ~(page - 1);
    if (end > start && end - start >= (uintptr_t)4 << 20) {
        (void)madvise((void*)start, end - start, MADV_HUGEPAGE);
    }
#else
    (void)data;
    (void)size;
#endif
}

#endif
