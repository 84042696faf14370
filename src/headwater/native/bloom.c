/* Set and read the bits of a Bloom filter, as `add` and `contains` of bloom.py do in NumPy, but faster: nearly every
   bit is a cache miss, so the bits of several items are prefetched before the first is used. */

#include "calls.h"
#include <stdint.h>

#ifdef _MSC_VER
#include <intrin.h>
#define PREFETCH(address) _mm_prefetch((const char *)(address), _MM_HINT_T0)
#else
#define PREFETCH(address) __builtin_prefetch(address, 1)
#endif

#define BLOCK 512     /* bits, as in bloom.py */
#define TOGETHER 16   /* items whose bits are prefetched together */
#define MOST_BITS 64  /* of an item */

static uint64_t mixed(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

/* Compute the numbers of the bits of `count` items, and prefetch these bits. */
static void prefetch_bits(const uint8_t *filter, const uint64_t *hashes, int64_t count, uint64_t blocks, int64_t bits,
                          uint64_t numbers[][MOST_BITS]) {
    for (int64_t i = 0; i < count; i++) {
        uint64_t value = hashes[i], step = mixed(hashes[i] ^ 0xD6E8FEB86659FD93u) | 1;
        for (int64_t j = 0; j < bits; j++, value += step) {
            uint64_t block = ((value >> 32) * blocks) >> 32;
            numbers[i][j] = block * BLOCK + value % BLOCK;
            PREFETCH(filter + numbers[i][j] / 8);
        }
    }
}

/* hashes (count,): each sets `bits` bits of the `blocks` blocks of `filter`; bits <= MOST_BITS. */
EXPORT int64_t headwater_bloom_add(uint8_t *filter, const uint64_t *hashes, int64_t count, int64_t blocks, int64_t bits) {
    uint64_t numbers[TOGETHER][MOST_BITS];
    if (blocks <= 0 || bits < 1 || bits > MOST_BITS) return OUT_OF_RANGE;
    if (!calls_enter()) return CLOSED;
    for (int64_t start = 0; start < count; start += TOGETHER) {
        int64_t items = count - start < TOGETHER ? count - start : TOGETHER;
        prefetch_bits(filter, hashes + start, items, (uint64_t)blocks, bits, numbers);
        for (int64_t i = 0; i < items; i++)
            for (int64_t j = 0; j < bits; j++) filter[numbers[i][j] / 8] |= (uint8_t)(1u << numbers[i][j] % 8);
    }
    calls_leave();
    return DONE;
}

/* found (count,): 1 where every bit of an item is set, else 0. */
EXPORT int64_t headwater_bloom_contains(const uint8_t *filter, const uint64_t *hashes, int64_t count, int64_t blocks,
                              int64_t bits, uint8_t *found) {
    uint64_t numbers[TOGETHER][MOST_BITS];
    if (blocks <= 0 || bits < 1 || bits > MOST_BITS) return OUT_OF_RANGE;
    if (!calls_enter()) return CLOSED;
    for (int64_t start = 0; start < count; start += TOGETHER) {
        int64_t items = count - start < TOGETHER ? count - start : TOGETHER;
        prefetch_bits(filter, hashes + start, items, (uint64_t)blocks, bits, numbers);
        for (int64_t i = 0; i < items; i++) {
            unsigned all = 1;
            for (int64_t j = 0; j < bits && all; j++) all = filter[numbers[i][j] / 8] >> numbers[i][j] % 8 & 1u;
            found[start + i] = (uint8_t)all;
        }
    }
    calls_leave();
    return DONE;
}
