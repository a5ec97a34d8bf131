#define _GNU_SOURCE
#include "threads/apart.h"
#include <sched.h>

static _Thread_local int kept_off = -1;
static _Thread_local cpu_set_t allowed, left; /* before that, and since */

static _Thread_local int stays;
static _Thread_local cpu_set_t at_large; /* allowed before it stayed anywhere */

void mk_stay_on(const int* processors, int count) {
  if (!stays && sched_getaffinity(0, sizeof at_large, &at_large)) return;
  cpu_set_t own = at_large;
  if (count) CPU_ZERO(&own);
  for (int i = 0; i < count; i++)
    if (processors[i] >= 0 && processors[i] < CPU_SETSIZE) CPU_SET(processors[i], &own);
  CPU_AND(&own, &own, &at_large);
  if (CPU_COUNT(&own) && !sched_setaffinity(0, sizeof own, &own)) stays = count > 0;
}

int mk_keep_off(int processor) {
  if (processor < 0 || processor >= CPU_SETSIZE || sched_getcpu() != processor) return 0;
  if (kept_off < 0 && sched_getaffinity(0, sizeof allowed, &allowed)) return 0;
  cpu_set_t others = allowed;
  CPU_CLR(processor, &others);
  if (!CPU_COUNT(&others) || sched_setaffinity(0, sizeof others, &others)) return 0;
  left = others;
  kept_off = processor;
  return 1;
}

void mk_let_back(void) {
  cpu_set_t now;
  if (kept_off < 0) return;
  kept_off = -1;
  /* Whoever has set something else since then means it. */
  if (!sched_getaffinity(0, sizeof now, &now) && CPU_EQUAL(&now, &left)) sched_setaffinity(0, sizeof allowed, &allowed);
}
