#define _GNU_SOURCE
#include "pool.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

enum { MOST = 256 };
static const long SPIN_NS = 60000; /* from one product of a forward pass to the next */

/* Each on a cache line of its own: they are written by different threads at the same time. */
static _Alignas(64) atomic_uint epoch;  /* one more with every job; sleepers wait for it to change */
static _Alignas(64) atomic_int is_open; /* the job's fields may be read and chunks claimed */
static _Alignas(64) atomic_int next_chunk;
static _Alignas(64) atomic_int inside; /* workers between looking at is_open and their last chunk */
static _Alignas(64) atomic_int sleepers;
static atomic_int wanted; /* workers that take part; those with a higher number sleep */
static mk_chunk job_run;
static void* job;
static int job_chunks;
static int thread_count = 1, started;
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;

static long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void claim(void) {
  for (int c; (c = atomic_fetch_add_explicit(&next_chunk, 1, memory_order_relaxed)) < job_chunks;) job_run(job, c);
}

/* Until there is a job behind `seen` in which worker `me` takes part; returns its epoch. */
static unsigned await_job(int me, unsigned seen) {
  long until = now_ns() + SPIN_NS;
  for (;;) {
    unsigned e = atomic_load(&epoch);
    if (e != seen && me < atomic_load(&wanted)) return e;
    if (e != seen) seen = e; /* not for this one */
    for (int i = 0; i < 64; i++) PAUSE();
    if (now_ns() < until) continue;
    atomic_fetch_add(&sleepers, 1);
    syscall(SYS_futex, &epoch, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0); /* returns at once where it has changed */
    atomic_fetch_sub(&sleepers, 1);
    until = now_ns() + SPIN_NS;
  }
}

static void* work(void* arg) {
  const int me = (int)(intptr_t)arg;
  unsigned seen = atomic_load(&epoch) - 1; /* the job that made this thread start may still be open */
  for (;;) {
    seen = await_job(me, seen);
    atomic_fetch_add(&inside, 1);
    if (atomic_load(&is_open)) claim();
    atomic_fetch_sub(&inside, 1);
  }
  return NULL;
}

static void after_fork(void) {
  started = 0;
  atomic_store(&inside, 0);
  atomic_store(&sleepers, 0);
  atomic_store(&is_open, 0);
  pthread_mutex_init(&busy, NULL);
}

static void start_workers(void) {
  static int hooked;
  if (!hooked) {
    pthread_atfork(NULL, NULL, after_fork);
    hooked = 1;
  }
  for (; started < thread_count - 1; started++) {
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&thread, &attr, work, (void*)(intptr_t)started);
    pthread_attr_destroy(&attr);
    if (failed) break; /* fewer threads are slower, not wrong */
  }
}

void mk_set_threads(int count) {
  pthread_mutex_lock(&busy);
  thread_count = count < 1 ? 1 : count > MOST ? MOST : count;
  atomic_store(&wanted, thread_count - 1);
  pthread_mutex_unlock(&busy);
}

int mk_threads(void) { return thread_count; }

void mk_run(mk_chunk run, void* with, int chunks) {
  if (chunks <= 1 || thread_count == 1 || pthread_mutex_trylock(&busy)) {
    for (int c = 0; c < chunks; c++) run(with, c);
    return;
  }
  if (started < thread_count - 1) start_workers();
  job_run = run;
  job = with;
  job_chunks = chunks;
  atomic_store(&next_chunk, 0);
  atomic_store(&is_open, 1);
  atomic_fetch_add(&epoch, 1);
  if (atomic_load(&sleepers)) syscall(SYS_futex, &epoch, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  claim();
  atomic_store(&is_open, 0); /* nobody enters from here on */
  for (int i = 0; atomic_load(&inside); i++) {
    PAUSE();
    if (i % 4096 == 4095) sched_yield(); /* its thread may have lost the processor */
  }
  pthread_mutex_unlock(&busy);
}
