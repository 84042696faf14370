/* Arrays that grow, and the hash of bytes: what bpe_words.c and bpe_merges.c share. */
#ifndef HEADWATER_ARRAYS_H
#define HEADWATER_ARRAYS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline uint64_t hash_bytes(const uint8_t *data, int64_t length) {
    uint64_t hash = 0x9E3779B97F4A7C15ull ^ (uint64_t)length;
    while (length >= 8) {
        uint64_t part;
        memcpy(&part, data, 8);
        hash = (hash ^ part) * 0xD6E8FEB86659FD93ull;
        hash ^= hash >> 32;
        data += 8;
        length -= 8;
    }
    uint64_t last = 0;
    for (int64_t i = 0; i < length; i++) last |= (uint64_t)data[i] << (8 * i);
    hash = (hash ^ last) * 0xD6E8FEB86659FD93ull;
    hash ^= hash >> 32;
    hash *= 0xD6E8FEB86659FD93ull;
    return hash ^ (hash >> 29);
}

/* Room for one more element of `size` bytes in `*array`; arrays grow by half. */
static inline int make_room(void **array, int64_t wanted, int64_t *capacity, size_t size) {
    if (wanted <= *capacity) return 0;
    int64_t larger = *capacity + *capacity / 2;
    if (larger < wanted) larger = wanted;
    void *moved = realloc(*array, (size_t)larger * size);
    if (!moved) return -1;
    *array = moved;
    *capacity = larger;
    return 0;
}

#endif
