/* Threads that share the items of one phase after the other. */
#ifndef HEADWATER_POOL_H
#define HEADWATER_POOL_H

#include <stdint.h>

typedef void (*Work)(const void *task, int64_t item, int thread);

enum { MOST_THREADS = 256 };

/* Between begin and end a call has the pool, and up to `threads` threads, for itself. 0 once the interpreter ends. */
int pool_begin(int64_t threads);
void pool_run(Work work, const void *task, int64_t items);
void pool_end(void);

#endif
