/* Both lanes of CRC-32C, and both CRCs against their published check values: for processors that the tests do
 * not run on. With the ziglang wheel as the compiler and qemu's user mode, from the repository's root:
 *
 *     python -m ziglang cc -target aarch64-linux-musl -O2 -static -Isrc/stratalog/records fuzz/crc_check.c \
 *         -o build/crc_check && qemu-aarch64-static build/crc_check
 *
 * On this machine: cc -O2 -Isrc/stratalog/records fuzz/crc_check.c -o build/crc_check && build/crc_check
 */
#include <stdio.h>

#include "_crc.h"

#define SIZE 40000

int main(void) {
    static uint8_t data[SIZE];
    static const uint8_t check[] = "123456789";
    uint32_t random = 1;
    size_t cases = 0;
    int hardware = stratalog_crc_init(1);
    for (size_t i = 0; i < SIZE; i++) {
        random = random * 1664525u + 1013904223u;
        data[i] = (uint8_t)(random >> 24);
    }
    if (stratalog_crc32c(0, check, 9) != 0xe3069283u || stratalog_crc32(0, check, 9) != 0xcbf43926u ||
        stratalog_crc32c_portable(0, check, 9) != 0xe3069283u) {
        puts("FAILED: the check value of 123456789");
        return 1;
    }
    /* Every length to 7000 (short and long blocks with every remainder), then steps; eight alignments. */
    for (size_t size = 0; size <= SIZE - 8; size += size < 7000 ? 1 : 97)
        for (size_t at = 0; at < 8; at++, cases++) {
            uint32_t start = (uint32_t)(size * 2654435761u) * (uint32_t)(at & 1);
            uint32_t expected = stratalog_crc32c_portable(start, data + at, size);
            size_t half = size / 3;
            uint32_t joined = stratalog_crc32c(start, data + at, half);
            joined = stratalog_crc32c(joined, data + at + half, size - half);
            if (stratalog_crc32c(start, data + at, size) != expected || joined != expected) {
                printf("FAILED: %zu bytes from %zu\n", size, at);
                return 1;
            }
        }
    printf("CRC-32C on %s: %zu cases agree\n", hardware ? "the CRC instruction" : "tables", cases);
    return 0;
}
