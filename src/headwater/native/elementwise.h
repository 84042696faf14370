/* What the kernels between matrix products share: their threads, and vectors of float32 or bfloat16. */
#ifndef HEADWATER_ELEMENTWISE_H
#define HEADWATER_ELEMENTWISE_H

#include "calls.h"
#include "simd.h"

/* ---- threads ---- */

typedef void (*Work)(const void *task, int64_t first, int64_t last);
typedef struct {
    Work work;
    const void *task;
    int64_t items;
} Division;

extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned) __attribute__((weak));
extern int omp_get_thread_num(void) __attribute__((weak));
extern int omp_get_num_threads(void) __attribute__((weak));

static inline void own_part(void *argument) {
    const Division *d = argument;
    const int64_t number = omp_get_thread_num(), count = omp_get_num_threads();
    d->work(d->task, d->items * number / count, d->items * (number + 1) / count);
}

/* `items` divided among `threads`; each item's result is the same whoever computes it. */
static inline int64_t divide(Work work, const void *task, int64_t items, int64_t threads) {
    Division division = {work, task, items};
    if (!calls_enter()) return CLOSED;
    if (threads > 1 && items > 1 && GOMP_parallel && omp_get_thread_num && omp_get_num_threads)
        GOMP_parallel(own_part, &division, (unsigned)threads, 0);
    else
        work(task, 0, items);
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
