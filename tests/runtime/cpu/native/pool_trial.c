/* Trials of the pool, compiled with pool.c by test_pool.py:  pool_trial NAME [SECONDS]
 *
 * Ends with 0, or prints what was wrong and ends with 1. Under ThreadSanitizer too.
 */
#define _GNU_SOURCE
#include "threads/pool.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(holds, ...)                                               \
  do {                                                                  \
    if (!(holds)) fprintf(stderr, __VA_ARGS__), fputs("\n", stderr), _exit(1); \
  } while (0)

static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* A job that counts how often each chunk was run; not atomic, as every chunk belongs to one thread. */
enum { MOST_CHUNKS = 10000 };
struct counts { int of[MOST_CHUNKS]; };
static void count(void* with, int chunk) { ((struct counts*)with)->of[chunk]++; }

static void once_each(struct counts* c, int chunks) {
  memset(c, 0, sizeof *c);
  mk_run(count, c, chunks);
  for (int i = 0; i < MOST_CHUNKS; i++)
    CHECK(c->of[i] == (i < chunks), "chunk %d of %d was run %d times by %d threads", i, chunks, c->of[i], mk_threads());
}

static unsigned next_random(unsigned* state) { return *state = *state * 1664525u + 1013904223u; }

static int chunks_like(unsigned* state) { /* mostly few, sometimes thousands, never none */
  const unsigned r = next_random(state) >> 8;
  return 1 + (int)(r % 16 ? r / 16 % 40 : r / 16 % MOST_CHUNKS);
}

static void every_chunk(double unused) {
  (void)unused;
  static struct counts c;
  for (int threads = 1; threads <= 5; threads++) {
    mk_set_threads(threads);
    for (int chunks = 0; chunks < 70; chunks++) once_each(&c, chunks);
    once_each(&c, 4097);
    once_each(&c, MOST_CHUNKS);
  }
}

static atomic_int stop;

static void* call_again(void* seed) {
  struct counts* c = malloc(sizeof *c);
  unsigned state = (unsigned)(size_t)seed;
  while (!atomic_load(&stop)) once_each(c, chunks_like(&state));
  free(c);
  return NULL;
}

/* `callers` threads for a while, during which `meanwhile` is called again and again. */
static void many(int callers, double seconds, void (*meanwhile)(unsigned)) {
  pthread_t threads[64];
  atomic_store(&stop, 0);
  for (int i = 0; i < callers; i++) pthread_create(&threads[i], NULL, call_again, (void*)(size_t)(i + 1));
  const double until = seconds_of(CLOCK_MONOTONIC) + seconds;
  for (unsigned turn = 0; seconds_of(CLOCK_MONOTONIC) < until; turn++) meanwhile(turn);
  atomic_store(&stop, 1);
  for (int i = 0; i < callers; i++) pthread_join(threads[i], NULL);
}

static void change_count(unsigned turn) {
  mk_set_threads((int)(turn * 7 % 9)); /* 0 counts as 1 */
  usleep(500);
}

static void two_callers(double seconds) { many(2, seconds, change_count); }
static void many_callers(double seconds) { many(64, seconds, change_count); }

static __thread int is_caller;
static atomic_int helped;

static void wait_for_help(void* helper_us, int chunk) {
  (void)chunk;
  while (is_caller && !atomic_load(&helped)) usleep(500);
  if (is_caller) return;
  atomic_store(&helped, 1);
  usleep(*(useconds_t*)helper_us);
}

/* A job that ends only when a helper has taken part, for so long. */
static void with_help(useconds_t helper_us) {
  is_caller = 1;
  atomic_store(&helped, 0);
  mk_run(wait_for_help, &helper_us, 2);
}

static void fork_once(unsigned turn) {
  mk_set_threads(2 + (int)turn % 3);
  const pid_t child = fork();
  CHECK(child >= 0, "no process could be made");
  if (child == 0) {
    alarm(30);
    static struct counts c;
    for (int i = 1; i < 40; i++) once_each(&c, i);
    with_help(0);
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  CHECK(status == 0, "the child of a fork ended with %x", status);
}

static void forks(double seconds) { many(3, seconds, fork_once); }

/* Threads without work take no processor time, a few spins apart. */
static void at_rest(double unused) {
  (void)unused;
  static struct counts c;
  mk_set_threads(8);
  for (int i = 0; i < 100; i++) once_each(&c, 64);
  const double before = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  usleep(500000);
  const double spent = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - before;
  CHECK(spent < 0.02, "a pool without work took %.1f ms of processor time", 1e3 * spent);
}

/* Neither does a caller whose helper has lost its processor. */
static void caller_waits(double unused) {
  (void)unused;
  mk_set_threads(2);
  const double before = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  with_help(400000);
  const double spent = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - before;
  CHECK(spent < 0.04, "waiting for a helper took %.1f ms of processor time", 1e3 * spent);
}

static void work_long_after_help(void* caller_us, int chunk) {
  (void)chunk;
  if (!is_caller) {
    atomic_store(&helped, 1);
    return;
  }
  while (!atomic_load(&helped)) usleep(500);
  usleep(*(useconds_t*)caller_us);
}

/* Nor does a helper that finds no chunk left, while the caller is at its last. */
static void helper_waits(double unused) {
  (void)unused;
  useconds_t caller_us = 400000;
  mk_set_threads(2);
  is_caller = 1;
  const double before = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  mk_run(work_long_after_help, &caller_us, 2);
  const double spent = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - before;
  CHECK(spent < 0.04, "a helper with nothing to do took %.1f ms of processor time", 1e3 * spent);
}

static atomic_int at_work;
static void count_workers(void* most, int chunk) {
  (void)chunk;
  const int now = atomic_fetch_add(&at_work, 1) + 1;
  if (now > atomic_load((atomic_int*)most)) atomic_store((atomic_int*)most, now);
  usleep(200);
  atomic_fetch_sub(&at_work, 1);
}

/* Helpers that an earlier number had started do not join when it is lower. */
static void no_more_than_asked(double unused) {
  (void)unused;
  for (int threads = 6; threads; threads--) {
    atomic_int most = 0;
    mk_set_threads(threads);
    for (int again = 0; again < 20; again++) mk_run(count_workers, &most, 20);
    CHECK(atomic_load(&most) <= threads, "%d threads were at work, asked for were %d", atomic_load(&most), threads);
  }
}

static struct share { atomic_long own, help; } shares[2];
static void spin_a_little(void* with, int chunk) {
  (void)chunk;
  struct share* s = with;
  const double until = seconds_of(CLOCK_THREAD_CPUTIME_ID) + 20e-6;
  while (seconds_of(CLOCK_THREAD_CPUTIME_ID) < until) continue;
  atomic_fetch_add(is_caller ? &s->own : &s->help, 1);
}

static void* call_steadily(void* share) {
  is_caller = 1;
  while (!atomic_load(&stop)) mk_run(spin_a_little, share, 16);
  return NULL;
}

/* One helper and two callers, both of whom always have work: neither has the helper for itself. On a machine with much else
 * to do one of them may wait for its turn for longer than this takes; a pool that prefers one does so every time. */
static void fair_shares(double seconds) {
  long a = 0, b = 0;
  mk_set_threads(2);
  for (int tried = 0; tried < 40 && (a <= (a + b) / 5 || b <= (a + b) / 5); tried++) {
    pthread_t threads[2];
    atomic_store(&stop, 0);
    for (int i = 0; i < 2; i++) atomic_store(&shares[i].help, 0), pthread_create(&threads[i], NULL, call_steadily, &shares[i]);
    usleep((useconds_t)(1e6 * seconds));
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    a = shares[0].help, b = shares[1].help;
  }
  CHECK(a + b > 0, "there was no help");
  CHECK(a > (a + b) / 5 && b > (a + b) / 5, "one caller had %ld chunks of help, the other %ld", a, b);
}

static const struct { const char* name; void (*run)(double); } trials[] = {
    {"every_chunk", every_chunk}, {"two_callers", two_callers}, {"many_callers", many_callers}, {"forks", forks},
    {"at_rest", at_rest},         {"caller_waits", caller_waits}, {"fair_shares", fair_shares},
    {"helper_waits", helper_waits},
    {"no_more_than_asked", no_more_than_asked},
};

int main(int argc, char** argv) {
  for (size_t i = 0; argc > 1 && i < sizeof trials / sizeof *trials; i++)
    if (!strcmp(trials[i].name, argv[1])) {
      trials[i].run(argc > 2 ? atof(argv[2]) : 0.5);
      return 0;
    }
  fprintf(stderr, "no such trial\n");
  return 2;
}
