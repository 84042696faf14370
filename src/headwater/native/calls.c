/* See calls.h. */

#include "calls.h"

#ifdef _WIN32
#include <windows.h>
static volatile LONG64 entered, closing;
static int64_t add(int64_t n) { return InterlockedExchangeAdd64(&entered, n) + n; }
static int64_t is_closing(void) { return InterlockedOr64(&closing, 0); }
static void start_closing(void) { InterlockedExchange64(&closing, 1); }
static void pause_briefly(void) { Sleep(1); }
#else
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
static _Atomic int64_t entered, closing;
static int64_t add(int64_t n) { return atomic_fetch_add(&entered, n) + n; }
static int64_t is_closing(void) { return atomic_load(&closing); }
static void start_closing(void) { atomic_store(&closing, 1); }
static void pause_briefly(void) { nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); }

/* A child of fork has none of its parent's threads, so none of their calls. */
static void after_fork(void) { atomic_store(&entered, 0); }
__attribute__((constructor)) static void prepare(void) { pthread_atfork(NULL, NULL, after_fork); }
#endif

void (*calls_at_close)(void);

int calls_enter(void) {
    add(1);
    if (!is_closing()) return 1;
    add(-1);
    return 0;
}

void calls_leave(void) { add(-1); }

EXPORT void headwater_close(void) {
    start_closing();
    while (add(0) > 0) pause_briefly();
    if (calls_at_close) calls_at_close();
}
