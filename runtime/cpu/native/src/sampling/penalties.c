#include "sampling/penalties.h"
#include "threads/held.h"
#include <string.h>

/* Of each id how often it stands there: zeros between two calls. */
static int32_t* counts(int size) {
  static _Thread_local struct mk_held for_ids;
  const size_t bytes = (size_t)size * sizeof(int32_t);
  const int are_new = bytes > for_ids.bytes;
  int32_t* const times = mk_hold(&for_ids, bytes);
  if (are_new) memset(times, 0, bytes);
  return times;
}

static float penalised(const struct mk_penalty* by, float x, int32_t times) {
  const float repeated = x < 0 ? x * by->repeat : x / by->repeat;
  const float off = by->frequency * (float)times;
  return repeated - by->presence - off;
}

static void one(const struct mk_penalty* by, const int32_t* inputs, int own, float* x, int size) {
  int32_t* const times = counts(size);
  const int64_t all = by->count + own, first = all > by->window ? all - by->window : 0;
  for (int64_t i = first; i < all; i++) {
    const int32_t id = i < by->count ? by->past[i] : inputs[i - by->count];
    if (id >= 0 && id < size) times[id]++;
  }
  for (int64_t i = first; i < all; i++) {
    const int32_t id = i < by->count ? by->past[i] : inputs[i - by->count];
    if (id < 0 || id >= size || !times[id]) continue;
    x[id] = penalised(by, x[id], times[id]);
    times[id] = 0; /* once */
  }
}

void mk_penalise(const struct mk_penalty* by, const int32_t* inputs, int own, float* x, int columns, int size) {
  for (int c = 0; c < columns; c++) one(by, inputs, own + c, x + (ptrdiff_t)c * size, size);
}
