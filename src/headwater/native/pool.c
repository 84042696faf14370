/* See pool.h.
 *
 * A phase is divided into items that threads take one by one: a thread that the system has suspended delays no more
 * than the item it is in, where a barrier would wait for it in every phase. `state` is the serial number of the phase
 * (high half) and how many of its items are not yet taken. A thread that takes one may read the task until it reports
 * the item done, as the phase cannot end before.
 *
 * One call has the pool at a time, in the order in which they came. A thread that gives way runs its phases in slices,
 * and between two slices it lets the calls go first that wait by then. */

#include "pool.h"
#include "calls.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { SPINS_BEFORE_YIELD = 2000, SPINS_BEFORE_REST = 2500, SPINS_BEFORE_SLEEP = 20000, SLICE_OF_A_THREAD = 4 };

static struct {
    _Atomic uint64_t state;
    _Atomic int64_t done, end; /* end: the item of the phase at which the present slice ends */
    _Atomic(Work) work;
    _Atomic(const void *) task;
    _Atomic int sleeping, stopping, limit; /* limit: how many helpers the present call may use */
    int helpers;
    pthread_t helper[MOST_THREADS];
    _Atomic int64_t numbers, serving; /* each call takes a number; the call that is served has the pool */
    _Atomic int resting;              /* whether the call sleeps until its slice is done */
    pthread_mutex_t call, sleep;
    pthread_cond_t turn, wake, finished;
} pool = {.call = PTHREAD_MUTEX_INITIALIZER,
          .sleep = PTHREAD_MUTEX_INITIALIZER,
          .turn = PTHREAD_COND_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .finished = PTHREAD_COND_INITIALIZER};

static _Thread_local int gives_way;

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void wake_all(pthread_cond_t *condition) {
    pthread_mutex_lock(&pool.sleep);
    pthread_cond_broadcast(condition);
    pthread_mutex_unlock(&pool.sleep);
}

static int take_item(int thread) {
    uint64_t state = atomic_load_explicit(&pool.state, memory_order_acquire);
    while ((uint32_t)state != 0) {
        if (thread > atomic_load_explicit(&pool.limit, memory_order_relaxed)) return 0;
        if (!atomic_compare_exchange_weak(&pool.state, &state, state - 1)) continue;
        const Work work = atomic_load_explicit(&pool.work, memory_order_relaxed);
        const int64_t end = atomic_load_explicit(&pool.end, memory_order_relaxed);
        work(atomic_load_explicit(&pool.task, memory_order_relaxed), end - (int64_t)(uint32_t)state, thread);
        atomic_fetch_add(&pool.done, 1);
        if (atomic_load(&pool.resting)) wake_all(&pool.finished);
        return 1;
    }
    return 0;
}

static void *help(void *number) {
    const int thread = (int)(intptr_t)number;
    for (int idle = 0; !atomic_load(&pool.stopping); idle++) {
        if (take_item(thread)) {
            idle = 0;
        } else if (idle < SPINS_BEFORE_SLEEP) {
            relax();
        } else {
            pthread_mutex_lock(&pool.sleep);
            atomic_fetch_add(&pool.sleeping, 1);
            while ((uint32_t)atomic_load(&pool.state) == 0 && !atomic_load(&pool.stopping))
                pthread_cond_wait(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.sleeping, 1);
            pthread_mutex_unlock(&pool.sleep);
            idle = 0;
        }
    }
    return NULL;
}

static void take_turn(int helpers) {
    pthread_mutex_lock(&pool.call);
    const int64_t number = atomic_fetch_add(&pool.numbers, 1);
    while (atomic_load(&pool.serving) != number) pthread_cond_wait(&pool.turn, &pool.call);
    pthread_mutex_unlock(&pool.call);
    pool.limit = helpers;
}

static void end_turn(void) {
    pthread_mutex_lock(&pool.call);
    atomic_fetch_add(&pool.serving, 1);
    pthread_cond_broadcast(&pool.turn);
    pthread_mutex_unlock(&pool.call);
}

/* Leave this thread's core to the helper that the system has suspended within an item. */
static void rest(int64_t items) {
    pthread_mutex_lock(&pool.sleep);
    atomic_store(&pool.resting, 1);
    while (atomic_load(&pool.done) < items) pthread_cond_wait(&pool.finished, &pool.sleep);
    atomic_store(&pool.resting, 0);
    pthread_mutex_unlock(&pool.sleep);
}

static void run_slice(Work work, const void *task, int64_t first, int64_t items) {
    if (items <= 1 || pool.limit == 0) {
        for (int64_t item = 0; item < items; item++) work(task, first + item, 0);
        return;
    }
    atomic_store(&pool.work, work);
    atomic_store(&pool.task, task);
    atomic_store(&pool.end, first + items);
    atomic_store(&pool.done, 0);
    const uint64_t serial = (atomic_load(&pool.state) >> 32) + 1;
    atomic_store(&pool.state, serial << 32 | (uint64_t)items);
    if (atomic_load(&pool.sleeping)) wake_all(&pool.wake);
    while (take_item(0)) {}
    for (int spins = 0; atomic_load_explicit(&pool.done, memory_order_acquire) < items; spins++) {
        if (spins < SPINS_BEFORE_YIELD) relax();
        else if (spins < SPINS_BEFORE_REST) sched_yield();
        else rest(items);
    }
}

void pool_run(Work work, const void *task, int64_t items) {
    const int helpers = pool.limit;
    const int64_t slice = gives_way ? SLICE_OF_A_THREAD * (helpers + 1) : items;
    for (int64_t first = 0; first < items; first += slice) {
        if (gives_way && atomic_load(&pool.numbers) - atomic_load(&pool.serving) > 1) {
            end_turn();
            take_turn(helpers);
        }
        run_slice(work, task, first, items - first < slice ? items - first : slice);
    }
}

/* Called when the last call is over and no other can begin. */
static void stop(void) {
    atomic_store(&pool.stopping, 1);
    wake_all(&pool.wake);
    for (int i = 0; i < pool.helpers; i++) pthread_join(pool.helper[i], NULL);
    pool.helpers = 0;
}

static void after_fork(void) { /* a child has none of its parent's threads */
    pool.helpers = pool.limit = 0;
    atomic_store(&pool.state, 0);
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.resting, 0);
    atomic_store(&pool.numbers, 0);
    atomic_store(&pool.serving, 0);
    pthread_mutex_init(&pool.call, NULL);
    pthread_mutex_init(&pool.sleep, NULL);
    pthread_cond_init(&pool.turn, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.finished, NULL);
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, after_fork);
    calls_at_close = stop;
}

int pool_begin(int64_t threads) {
    if (!calls_enter()) return 0;
    const int wanted = threads > MOST_THREADS ? MOST_THREADS - 1 : (int)threads - 1;
    take_turn(0);
    while (pool.helpers < wanted) {
        void *number = (void *)(intptr_t)(pool.helpers + 1);
        if (pthread_create(&pool.helper[pool.helpers], NULL, help, number)) break;
        pool.helpers++;
    }
    pool.limit = pool.helpers < wanted ? pool.helpers : wanted;
    return 1;
}

void pool_end(void) {
    end_turn();
    calls_leave();
}

/* Whether the calls of this thread give way to those of others from now on. */
EXPORT void headwater_give_way(int64_t does) { gives_way = does != 0; }
