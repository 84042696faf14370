/* Exported functions, and the rule that none of them runs past the interpreter's end.
 *
 * Every function that works on the caller's memory begins with `calls_enter` and ends with `calls_leave`. Python calls
 * `headwater_close` when the interpreter ends: from then on no call enters, and the function returns when the calls
 * that had entered are over. So no thread reads memory that the ending interpreter frees. */
#ifndef HEADWATER_CALLS_H
#define HEADWATER_CALLS_H

#include <stdint.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* What a function returns. */
enum { DONE = 0, OUT_OF_MEMORY = -1, CLOSED = -2, OUT_OF_RANGE = -3 };

int calls_enter(void); /* 0 once the interpreter ends */
void calls_leave(void);
extern void (*calls_at_close)(void); /* called when the interpreter ends and the last call is over, or NULL */

#endif
