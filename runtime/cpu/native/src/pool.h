/* The pool: short jobs (1 to 1000 us) cut into chunks, which threads claim one by one.
 *
 * The caller computes too, and waits only for chunks that somebody is computing, never for a thread that has not
 * woken up. Idle threads spin for some tens of microseconds, then sleep on a futex. One job at a time: a second
 * caller computes alone. After a fork the child starts threads of its own.
 */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
typedef void (*mk_chunk)(void* job, int chunk);
void mk_run(mk_chunk run, void* job, int chunks); /* returns when all chunks are done */
void mk_set_threads(int count);                   /* the caller included; takes effect with the next job */
int mk_threads(void);
#ifdef __cplusplus
}
#endif
