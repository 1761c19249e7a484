/* MD5 (RFC 1321) of many short keys at once: Kafka's log cleaner tells keys apart by it.
 *
 * One digest is a chain of 64 steps, each of which waits for the one before. Keys that fit one block (55 bytes,
 * which is nearly all of them) are therefore hashed sixteen at a time, in the lanes of vectors: with AVX2 in two
 * vectors, as one alone waits for its own result at each step. Longer keys are hashed one by one.
 */
#ifndef STRATALOG_MD5_HEADER
#define STRATALOG_MD5_HEADER

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define STRATALOG_MD5_LANES 16
#define STRATALOG_MD5_ABREAST_MIN 3 /* keys: fewer are faster one by one */
#define STRATALOG_MD5_SHORT_MAX 55 /* one block holds the key, a one bit and the length */

typedef uint32_t stratalog_md5_vector __attribute__((vector_size(4 * STRATALOG_MD5_LANES)));

static const uint32_t STRATALOG_MD5_SINES[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

#define STRATALOG_MD5_A 0x67452301
#define STRATALOG_MD5_B 0xefcdab89
#define STRATALOG_MD5_C 0x98badcfe
#define STRATALOG_MD5_D 0x10325476

#define STRATALOG_MD5_F(b, c, d) ((d) ^ ((b) & ((c) ^ (d))))
#define STRATALOG_MD5_G(b, c, d) ((c) ^ ((d) & ((b) ^ (c))))
#define STRATALOG_MD5_H(b, c, d) ((b) ^ (c) ^ (d))
#define STRATALOG_MD5_I(b, c, d) ((c) ^ ((b) | ~(d)))

#define STRATALOG_MD5_STEP(f, a, b, c, d, word, i, shift) \
    do { \
        a += f(b, c, d) + (word) + STRATALOG_MD5_SINES[i]; \
        a = (a << (shift) | a >> (32 - (shift))) + b; \
    } while (0)

#define STRATALOG_MD5_FOUR(f, w, i, k0, k1, k2, k3, s0, s1, s2, s3) \
    STRATALOG_MD5_STEP(f, a, b, c, d, (w)[k0], i, s0); \
    STRATALOG_MD5_STEP(f, d, a, b, c, (w)[k1], (i) + 1, s1); \
    STRATALOG_MD5_STEP(f, c, d, a, b, (w)[k2], (i) + 2, s2); \
    STRATALOG_MD5_STEP(f, b, c, d, a, (w)[k3], (i) + 3, s3)

/* The 64 steps over the words w, for numbers and for vectors of them alike. */
#define STRATALOG_MD5_ROUNDS(w) \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_F, w, 0, 0, 1, 2, 3, 7, 12, 17, 22); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_F, w, 4, 4, 5, 6, 7, 7, 12, 17, 22); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_F, w, 8, 8, 9, 10, 11, 7, 12, 17, 22); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_F, w, 12, 12, 13, 14, 15, 7, 12, 17, 22); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_G, w, 16, 1, 6, 11, 0, 5, 9, 14, 20); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_G, w, 20, 5, 10, 15, 4, 5, 9, 14, 20); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_G, w, 24, 9, 14, 3, 8, 5, 9, 14, 20); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_G, w, 28, 13, 2, 7, 12, 5, 9, 14, 20); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_H, w, 32, 5, 8, 11, 14, 4, 11, 16, 23); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_H, w, 36, 1, 4, 7, 10, 4, 11, 16, 23); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_H, w, 40, 13, 0, 3, 6, 4, 11, 16, 23); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_H, w, 44, 9, 12, 15, 2, 4, 11, 16, 23); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_I, w, 48, 0, 7, 14, 5, 6, 10, 15, 21); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_I, w, 52, 12, 3, 10, 1, 6, 10, 15, 21); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_I, w, 56, 8, 15, 6, 13, 6, 10, 15, 21); \
    STRATALOG_MD5_FOUR(STRATALOG_MD5_I, w, 60, 4, 11, 2, 9, 6, 10, 15, 21)

/* MD5 counts in little-endian words. */
static inline uint32_t stratalog_md5_word(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void stratalog_md5_put(uint8_t *p, uint32_t word) {
    p[0] = (uint8_t)word;
    p[1] = (uint8_t)(word >> 8);
    p[2] = (uint8_t)(word >> 16);
    p[3] = (uint8_t)(word >> 24);
}

static void stratalog_md5_block(uint32_t *state, const uint8_t *block) {
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], w[16];
    for (int i = 0; i < 16; i++) w[i] = stratalog_md5_word(block + 4 * i);
    STRATALOG_MD5_ROUNDS(w);
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

/* A key of any length. */
static void stratalog_md5(const uint8_t *data, size_t size, uint8_t *digest) {
    uint32_t state[4] = {STRATALOG_MD5_A, STRATALOG_MD5_B, STRATALOG_MD5_C, STRATALOG_MD5_D};
    uint8_t tail[128];
    size_t left = size, padded;
    for (; left >= 64; left -= 64, data += 64) stratalog_md5_block(state, data);
    padded = left <= STRATALOG_MD5_SHORT_MAX ? 64 : 128;
    memset(tail, 0, sizeof tail);
    if (left) memcpy(tail, data, left);
    tail[left] = 0x80;
    stratalog_md5_put(tail + padded - 8, (uint32_t)((uint64_t)size << 3));
    stratalog_md5_put(tail + padded - 4, (uint32_t)((uint64_t)size >> 29));
    stratalog_md5_block(state, tail);
    if (padded == 128) stratalog_md5_block(state, tail + 64);
    for (int i = 0; i < 4; i++) stratalog_md5_put(digest + 4 * i, state[i]);
}

/* The words of a key of at most 55 bytes, with its one bit and its length, in one lane; the others are zero. */
static inline void stratalog_md5_load(
    uint32_t (*words)[STRATALOG_MD5_LANES], int lane, const uint8_t *data, size_t size) {
    uint32_t last = 0x80;
    size_t whole = size / 4;
    for (size_t i = 0; i < whole; i++) words[i][lane] = stratalog_md5_word(data + 4 * i);
    for (size_t i = size; i > 4 * whole; i--) last = last << 8 | data[i - 1];
    words[whole][lane] = last;
    words[14][lane] = (uint32_t)size << 3;
}

/* As many keys of at most 55 bytes each as there are lanes. */
#define STRATALOG_MD5_ABREAST(name, attributes) \
    attributes static void name(const uint8_t *const *data, const int64_t *sizes, uint8_t *digests) { \
        stratalog_md5_vector w[16], a, b, c, d, zero = {0}; \
        uint32_t words[16][STRATALOG_MD5_LANES] = {{0}}, out[4][STRATALOG_MD5_LANES]; \
        for (int lane = 0; lane < STRATALOG_MD5_LANES; lane++) \
            stratalog_md5_load(words, lane, data[lane], (size_t)sizes[lane]); \
        memcpy(w, words, sizeof w); \
        a = zero + STRATALOG_MD5_A; \
        b = zero + STRATALOG_MD5_B; \
        c = zero + STRATALOG_MD5_C; \
        d = zero + STRATALOG_MD5_D; \
        STRATALOG_MD5_ROUNDS(w); \
        a += STRATALOG_MD5_A; \
        b += STRATALOG_MD5_B; \
        c += STRATALOG_MD5_C; \
        d += STRATALOG_MD5_D; \
        memcpy(out[0], &a, sizeof a); \
        memcpy(out[1], &b, sizeof b); \
        memcpy(out[2], &c, sizeof c); \
        memcpy(out[3], &d, sizeof d); \
        for (int lane = 0; lane < STRATALOG_MD5_LANES; lane++) \
            for (int i = 0; i < 4; i++) \
                stratalog_md5_put(digests + 16 * lane + 4 * i, out[i][lane]); \
    }

STRATALOG_MD5_ABREAST(stratalog_md5_abreast_plain, )
#if defined(__x86_64__) && defined(__GNUC__)
STRATALOG_MD5_ABREAST(stratalog_md5_abreast_avx2, __attribute__((target("avx2"))))
#endif

/* The digests of no more keys than there are lanes, 16 bytes each, one after the other. */
static void stratalog_md5_some(
    const uint8_t *const *data, const int64_t *sizes, int count, uint8_t *digests) {
    const uint8_t *lanes[STRATALOG_MD5_LANES];
    int64_t lane_sizes[STRATALOG_MD5_LANES];
    uint8_t out[16 * STRATALOG_MD5_LANES];
    int is_short = count >= STRATALOG_MD5_ABREAST_MIN;
    for (int i = 0; i < count; i++) is_short &= sizes[i] <= STRATALOG_MD5_SHORT_MAX;
    if (!is_short) {
        for (int i = 0; i < count; i++) stratalog_md5(data[i], (size_t)sizes[i], digests + 16 * i);
        return;
    }
    for (int lane = 0; lane < STRATALOG_MD5_LANES; lane++) { /* lanes without a key get the first one */
        lanes[lane] = data[lane < count ? lane : 0];
        lane_sizes[lane] = sizes[lane < count ? lane : 0];
    }
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2"))
        stratalog_md5_abreast_avx2(lanes, lane_sizes, out);
    else
#endif
        stratalog_md5_abreast_plain(lanes, lane_sizes, out);
    memcpy(digests, out, 16 * (size_t)count);
}

#endif
