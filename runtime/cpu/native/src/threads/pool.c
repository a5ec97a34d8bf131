#define _GNU_SOURCE
#include "threads/pool.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
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

enum { MOST = 256, PLACES = 16, PARTS = 8 };
static const long SPIN_NS = 50000; /* from one product of a forward pass to the next */

/* Chunks in a row, for a thread of its own to begin with; who finds none left goes on with another's. On a Zen 5 a token of
 * 125 M in q4 on two threads, which took chunks in turn: 720 -> 770 a second. */
struct part {
  _Alignas(64) atomic_int next; /* chunk to be claimed */
  int stop;
};

/* Where one caller's job lies. What different threads write at the same time has cache lines of its own. */
struct place {
  _Alignas(64) atomic_int taken; /* by a caller; the others look for another place */
  _Alignas(64) atomic_int is_open; /* the plain fields may be read and chunks claimed, by those counted in `inside` */
  mk_chunk run;
  void* with;
  int part_count, helpers;
  struct part parts[PARTS];
  _Alignas(64) atomic_int inside; /* helpers between looking at is_open and their last chunk */
  atomic_int caller_sleeps;
};
static struct place places[PLACES];
static _Alignas(64) atomic_uint epoch; /* one more with every job; sleeping helpers wait for it to change */
static atomic_int callers_processor = -1; /* where the last job came from: whoever spins or prepares there is in its way */
static _Alignas(64) atomic_int idle; /* helpers that are awake and look for a job */
static atomic_int sleepers;
static _Alignas(64) atomic_int thread_count = 1;
static atomic_int wanted_helpers; /* of all jobs that are there now */
static atomic_int started;
static pthread_t helpers[MOST];
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

static long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* 0 where this thread was woken; else the word was another one already, or a signal came. */
static long sleep_while(void* word, unsigned is) { return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, is, NULL, NULL, 0); }
static void wake(void* word, int count) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0); }

/* The first who finds no chunk left closes the place: whoever still works there is waited for, and others would come
 * again and again for nothing, in the way of the one who works. It is the same job still: we are counted in `inside`. */
static void claim(struct place* p, int first) {
  for (int i = 0; i < p->part_count; i++) {
    struct part* part = &p->parts[(first + i) % p->part_count];
    const int stop = part->stop;
    for (int c; (c = atomic_fetch_add_explicit(&part->next, 1, memory_order_relaxed)) < stop;) p->run(p->with, c);
  }
  atomic_store(&p->is_open, 0);
}

static void leave(struct place* p) {
  if (atomic_fetch_sub(&p->inside, 1) == 1 && atomic_load(&p->caller_sleeps)) wake(&p->inside, 1);
}

/* May this helper work there? Counted in `inside` first, so that the job stays while the answer is looked for. The part that
 * it begins with, or 0: that is the caller's. */
static int enter(struct place* p) {
  if (!atomic_load_explicit(&p->is_open, memory_order_relaxed)) return 0;
  const int others = atomic_fetch_add(&p->inside, 1);
  if (atomic_load(&p->is_open) && others < p->helpers) return others + 1;
  leave(p);
  return 0;
}

/* A job to help with, looked for behind the place of the last one, and the part to begin with; or NULL. */
static struct place* find_job(int* last, int* part) {
  for (int i = 1; i <= PLACES; i++) {
    const int at = (*last + i) % PLACES;
    if ((*part = enter(&places[at]))) {
      *last = at;
      return &places[at];
    }
  }
  return NULL;
}

/* Until there is a job behind `seen`. Spins until `until`, then sleeps. Returns until when to spin from now on:
 * only a helper that was woken, or has worked, is likely to be wanted soon. */
static long await_job(unsigned seen, long until) {
  while (atomic_load(&epoch) == seen) {
    for (int i = 0; i < 32; i++) PAUSE();
    if (now_ns() < until && sched_getcpu() != atomic_load_explicit(&callers_processor, memory_order_relaxed)) continue;
    atomic_fetch_sub(&idle, 1);
    atomic_fetch_add(&sleepers, 1);
    const int woken = sleep_while(&epoch, seen) == 0;
    atomic_fetch_sub(&sleepers, 1);
    atomic_fetch_add(&idle, 1);
    if (woken) return now_ns() + SPIN_NS;
  }
  return until;
}

static void* help(void* unused) {
  int last = 0, part;
  long until = now_ns() + SPIN_NS;
  atomic_fetch_add(&idle, 1);
  for (;;) {
    const unsigned seen = atomic_load(&epoch); /* before looking, so that no job is missed */
    struct place* p = find_job(&last, &part);
    if (p == NULL) {
      until = await_job(seen, until);
      continue;
    }
    atomic_fetch_sub(&idle, 1);
    claim(p, part);
    atomic_fetch_add(&idle, 1); /* before the caller can go on and count those who are idle */
    leave(p);
    until = now_ns() + SPIN_NS;
  }
  return unused;
}

/* The child has the thread that forked and no other: whatever they held is free. */
static void after_fork(void) {
  for (int i = 0; i < PLACES; i++) {
    atomic_store(&places[i].is_open, 0);
    atomic_store(&places[i].inside, 0);
    atomic_store(&places[i].taken, 0);
  }
  atomic_store(&idle, 0);
  atomic_store(&sleepers, 0);
  atomic_store(&wanted_helpers, 0);
  atomic_store(&started, 0);
  pthread_mutex_init(&starting, NULL);
}

static void hook_fork(void) { pthread_atfork(NULL, NULL, after_fork); }

static int start_one(int place) {
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  const int failed = pthread_create(&helpers[place], &detached, help, NULL);
  if (!failed) pthread_setname_np(helpers[place], "modelkit");
  pthread_attr_destroy(&detached);
  return !failed;
}

/* As many helpers as all jobs want, and there are processors for; where the system gives fewer, it is slower. */
static void start_helpers(int wanted, int most) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, hook_fork);
  sigset_t all, before; /* signals are for the threads of the program */
  sigfillset(&all);
  pthread_mutex_lock(&starting);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (wanted > most) wanted = most;
  while (atomic_load(&started) < wanted && start_one(atomic_load(&started))) atomic_fetch_add(&started, 1);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_mutex_unlock(&starting);
}

void mk_helpers_along(void) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
  pthread_mutex_lock(&starting);
  for (int i = 0; i < atomic_load(&started); i++) pthread_setaffinity_np(helpers[i], sizeof allowed, &allowed);
  pthread_mutex_unlock(&starting);
}

/* Of the process, which a thread may have fewer of. */
static int processors(void) {
  cpu_set_t allowed;
  const int count = sched_getaffinity(getpid(), sizeof allowed, &allowed) ? MOST : CPU_COUNT(&allowed);
  return count < MOST ? count : MOST;
}

/* Helpers for one more job of `own`. */
static void call_helpers(int own) {
  const int wanted = atomic_load(&wanted_helpers);
  static atomic_int room; /* for helpers; asked for once */
  if (!atomic_load(&room)) atomic_store(&room, processors());
  const int most = own > atomic_load(&room) - 1 ? own : atomic_load(&room) - 1;
  if (atomic_load(&started) < (wanted < most ? wanted : most)) start_helpers(wanted, most);
  const int missing = own - atomic_load(&idle);
  if (missing > 0 && atomic_load(&sleepers)) wake(&epoch, missing);
}

static struct place* take_place(void) {
  for (int i = 0; i < PLACES; i++)
    if (!atomic_load_explicit(&places[i].taken, memory_order_relaxed) && !atomic_exchange(&places[i].taken, 1)) return &places[i];
  return NULL;
}

/* Until every claimed chunk is done. Where a helper has lost its processor that can take milliseconds. */
static void await_helpers(struct place* p) {
  long until = 0;
  for (int i = 1; atomic_load(&p->inside); i++) {
    PAUSE();
    if (i % 32) continue;
    if (!until) until = now_ns() + SPIN_NS;
    if (now_ns() < until) continue;
    atomic_store(&p->caller_sleeps, 1);
    const int left = atomic_load(&p->inside);
    if (left) sleep_while(&p->inside, (unsigned)left);
    atomic_store(&p->caller_sleeps, 0);
  }
}

void mk_set_threads(int count) { atomic_store(&thread_count, count < 1 ? 1 : count > MOST ? MOST : count); }

int mk_threads(void) { return atomic_load(&thread_count); }

int mk_computes_on(void) { return atomic_load_explicit(&callers_processor, memory_order_relaxed); }

void mk_run(mk_chunk run, void* with, int chunks) {
  const int threads = mk_threads() < chunks ? mk_threads() : chunks;
  atomic_store_explicit(&callers_processor, sched_getcpu(), memory_order_relaxed);
  struct place* p = threads > 1 ? take_place() : NULL;
  if (p == NULL) {
    for (int c = 0; c < chunks; c++) run(with, c);
    return;
  }
  p->run = run;
  p->with = with;
  p->helpers = threads - 1;
  p->part_count = threads < PARTS ? threads : PARTS;
  for (int i = 0; i < p->part_count; i++) {
    atomic_store_explicit(&p->parts[i].next, (int)((long)chunks * i / p->part_count), memory_order_relaxed);
    p->parts[i].stop = (int)((long)chunks * (i + 1) / p->part_count);
  }
  atomic_store(&p->is_open, 1);
  atomic_fetch_add(&epoch, 1);
  atomic_fetch_add(&wanted_helpers, threads - 1);
  call_helpers(threads - 1);
  claim(p, 0);
  await_helpers(p);
  atomic_fetch_sub(&wanted_helpers, threads - 1);
  atomic_store(&p->taken, 0);
}
