/* The pool: short jobs (1 to 1000 us) cut into chunks, which threads claim one by one, each from a part of its own as long as
 * there are some: who computes chunks in a row has asked memory for the next one's weights.
 *
 * The caller computes too, and waits only for chunks that somebody is computing, never for a thread that has not
 * woken up. Whoever waits spins for some tens of microseconds, then sleeps on a futex. Several callers may have jobs
 * at once: a helper goes from one caller's job to the next caller's, so they share the threads. Every job has as
 * many as the number that was set when it began; the pool never starts more helpers than there are processors,
 * unless one caller asked for more. After a fork the child starts threads of its own.
 */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
typedef void (*mk_chunk)(void* job, int chunk);
void mk_run(mk_chunk run, void* job, int chunks); /* each of 0 .. chunks - 1 once; returns when all are done */
void mk_set_threads(int count);                   /* per job, the caller included; takes effect with the next job */
int mk_threads(void);
void mk_helpers_along(void);                       /* the pool's own threads may run where the calling one may */
int mk_computes_on(void);                         /* the processor that the last job came from; -1 before any */
#ifdef __cplusplus
}
#endif
