/* What the kernels between matrix products share: their threads, and vectors of float32 or bfloat16. */
#ifndef HEADWATER_ELEMENTWISE_H
#define HEADWATER_ELEMENTWISE_H

#include "calls.h"
#include "simd.h"

#include <stdatomic.h>

/* ---- threads ---- */

typedef void (*RangeWork)(const void *task, int64_t first, int64_t last);

enum { MOST_PARTS = 256, CHUNKS_OF_A_PART = 8 };

/* `items` in as many parts as threads. A thread takes its own part in chunks, which it may find in its cache, then what
 * is left of the others': one that the system has suspended, or a slow core, leaves no more than a chunk to wait for. */
typedef struct {
    RangeWork work;
    const void *task;
    int64_t items, parts, chunk;
    struct {
        _Atomic int64_t next;
        char apart[56]; /* each in a line of the cache of its own */
    } part[MOST_PARTS];
} Division;

extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned) __attribute__((weak));
extern int omp_get_thread_num(void) __attribute__((weak));

static inline void take_chunks(void *argument) {
    Division *d = argument;
    const int64_t own = omp_get_thread_num();
    for (int64_t i = 0; i < d->parts; i++) {
        const int64_t part = (own + i) % d->parts, end = d->items * (part + 1) / d->parts;
        int64_t first;
        while ((first = atomic_fetch_add_explicit(&d->part[part].next, d->chunk, memory_order_relaxed)) < end)
            d->work(d->task, first, first + d->chunk < end ? first + d->chunk : end);
    }
}

/* `items` divided among `threads` of torch's own, which would otherwise keep their cores from those of another pool
 * while they wait for the next matrix product; each item's result is the same whoever computes it. */
static inline int64_t divide(RangeWork work, const void *task, int64_t items, int64_t threads) {
    if (!calls_enter()) return CLOSED;
    if (threads > 1 && items > 1 && GOMP_parallel && omp_get_thread_num) {
        Division d;
        d.work = work, d.task = task, d.items = items, d.parts = threads < MOST_PARTS ? threads : MOST_PARTS;
        d.chunk = items / (d.parts * CHUNKS_OF_A_PART) + 1;
        for (int64_t part = 0; part < d.parts; part++) atomic_init(&d.part[part].next, items * part / d.parts);
        GOMP_parallel(take_chunks, &d, (unsigned)d.parts, 0);
    } else {
        work(task, 0, items);
    }
    calls_leave();
    return DONE;
}

/* ---- vectors ---- */

ALWAYS Floats load(const void *from, int64_t at, int half) {
    return half ? load_halves((const uint16_t *)from + at) : load_floats((const float *)from + at);
}

ALWAYS void store(void *to, int64_t at, int half, Floats x) {
    if (half) store_halves((uint16_t *)to + at, x);
    else store_floats((float *)to + at, x);
}

/* The last few of a row, followed by `fill`. */
ALWAYS Floats load_some(const void *from, int64_t at, int half, int64_t count, float fill) {
    Floats x = all(fill);
    for (int64_t i = 0; i < count; i++) {
        if (half) {
            const uint32_t bits = (uint32_t)((const uint16_t *)from)[at + i] << 16;
            float one;
            memcpy(&one, &bits, sizeof one);
            x[i] = one;
        } else {
            x[i] = ((const float *)from)[at + i];
        }
    }
    return x;
}

ALWAYS void store_some(void *to, int64_t at, int half, int64_t count, Floats x) {
    float line[LANES];
    uint16_t halves[LANES];
    store(line, 0, 0, x);
    store(halves, 0, 1, x);
    if (half) memcpy((uint16_t *)to + at, halves, (size_t)count * sizeof *halves);
    else memcpy((float *)to + at, line, (size_t)count * sizeof *line);
}

/* The statements for `at` at every vector of [0, count), where the last may have only `some` elements. */
#define EACH_VECTOR(count, ...)                                   \
    do {                                                          \
        int64_t at = 0;                                           \
        for (; at + LANES <= (count); at += LANES) {              \
            const int64_t some = LANES;                            \
            __VA_ARGS__                                            \
        }                                                         \
        if (at < (count)) {                                       \
            const int64_t some = (count) - at;                    \
            __VA_ARGS__                                            \
        }                                                         \
    } while (0)
#define LOAD(from, half, fill) (some == LANES ? load(from, at, half) : load_some(from, at, half, some, fill))
#define STORE(to, half, x) (some == LANES ? store(to, at, half, x) : store_some(to, at, half, some, x))

#endif
