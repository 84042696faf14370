/* The threads of pool.c and elementwise.h, without a clock: each check ends, or what it waits for never happens. */
#include "pool.c"
#include "elementwise.h"

#include <stdio.h>
#include <stdlib.h>

void headwater_close(void);

static void require(int holds, const char *claim) {
    if (holds) return;
    printf("false: %s\n", claim);
    exit(1);
}

/* ---- a call that gives way ---- */

enum { ITEMS = 1000, THREADS = 2 };
static pthread_t small;
static _Atomic int large_items, queued, items_at_queue, items_before_small;

static void small_work(const void *task, int64_t item, int thread) {
    (void)task, (void)item, (void)thread;
    items_before_small = atomic_load(&large_items);
}

static void *small_call(void *argument) {
    pool_begin(THREADS);
    pool_run(small_work, NULL, 1);
    pool_end();
    return argument;
}

/* At item 10 the small call comes; those after it begin when it waits for the pool. */
static void large_work(const void *task, int64_t item, int thread) {
    (void)task, (void)thread;
    if (item == 10) {
        pthread_create(&small, NULL, small_call, NULL);
        while (atomic_load(&pool.numbers) - atomic_load(&pool.serving) < 2) sched_yield();
        items_at_queue = atomic_load(&large_items);
        queued = 1;
    }
    while (item > 10 && !queued) sched_yield();
    atomic_fetch_add(&large_items, 1);
}

/* The items of a large call that run while a small one waits. */
static int items_waited_for(int yields) {
    large_items = queued = 0;
    headwater_give_way(yields);
    pool_begin(THREADS);
    pool_run(large_work, NULL, ITEMS);
    pool_end();
    pthread_join(small, NULL);
    headwater_give_way(0);
    return items_before_small - items_at_queue;
}

/* ---- a helper that is suspended within an item ---- */

static _Atomic int helper_began;

static void suspended_work(const void *task, int64_t item, int thread) {
    (void)task, (void)item;
    if (thread) {
        helper_began = 1;
        while (!atomic_load(&pool.resting)) sched_yield(); /* until the caller sleeps */
    }
    while (!helper_began) sched_yield();
}

/* ---- a team of which one thread alone runs ---- */

static int running;

void GOMP_parallel(void (*function)(void *), void *argument, unsigned threads, unsigned flags) {
    (void)flags;
    running = (int)threads - 1;
    function(argument);
}

int omp_get_thread_num(void) { return running; }

static int done[5000];

static void count_range(const void *task, int64_t first, int64_t last) {
    (void)task;
    for (int64_t item = first; item < last; item++) done[item]++;
}

int main(void) {
    require(items_waited_for(1) <= SLICE_OF_A_THREAD * THREADS, "a call that gives way delays others by one slice");
    require(items_waited_for(0) > ITEMS / 2, "another call runs to its end");

    pool_begin(THREADS);
    pool_run(suspended_work, NULL, 8);
    pool_end();

    const int sizes[] = {2, 3, 7, 12, 300, 5000};
    for (int threads = 2; threads <= 300; threads += 149)
        for (int i = 0; i < 6; i++) {
            memset(done, 0, sizeof done);
            divide(count_range, NULL, sizes[i], threads);
            for (int item = 0; item < sizes[i]; item++) require(done[item] == 1, "one thread does what the others leave");
        }
    headwater_close();
    puts("all hold");
    return 0;
}
