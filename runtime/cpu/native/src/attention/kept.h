/* Keys and values as layer memory keeps them: one vector per row, head and slot, as floats or packed. */
#pragma once
#include "simd/columns.h"
#include <stddef.h>
#include <stdint.h>

enum mk_form { MK_KEPT_F32, MK_KEPT_BF16, MK_KEPT_F16, MK_KEPT_Q8, MK_KEPT_Q4, MK_KEPT_FORMS };

/* Up to three parts: the numbers or their codes, and for packed forms a float32 scale and bias per group. The numbers
 * of one vector lie side by side; how far rows, heads and slots are apart is said in bytes, part by part. */
struct mk_kept {
  enum mk_form form;
  int size, group; /* numbers of a vector; those that share a scale */
  char* part[3];
  ptrdiff_t row[3], head[3], slot[3];
};

/* The slots of one row and head. */
struct mk_lane {
  const struct mk_kept* kept;
  char* part[3];
};

static inline struct mk_lane mk_lane_of(const struct mk_kept* k, int row, int head) {
  struct mk_lane lane = {k, {0}};
  for (int i = 0; i < 3; i++)
    if (k->part[i]) lane.part[i] = k->part[i] + row * k->row[i] + head * k->head[i];
  return lane;
}

/* Vectors one behind the other, wherever they lie: of some slots of a lane, or floats. The first of each part, and bytes from one
 * to the next. */
struct mk_span {
  enum mk_form form;
  int group;
  const char* part[3];
  ptrdiff_t slot[3];
};

static inline struct mk_span mk_span_of(const struct mk_lane* lane, int64_t slot) {
  const struct mk_kept* k = lane->kept;
  struct mk_span s = {k->form, k->form < MK_KEPT_Q8 ? k->size : k->group, {0}, {k->slot[0], k->slot[1], k->slot[2]}};
  for (int i = 0; i < 3; i++)
    if (lane->part[i]) s.part[i] = lane->part[i] + slot * k->slot[i];
  return s;
}

struct kept {
  /* out[i * stride ...]: vectors of `size` numbers as floats, zeros behind each up to `stride`. */
  void (*load)(const struct mk_span* from, int size, int count, float* out, int stride);
  /* One vector, as runtime.cache.codec encodes it. */
  void (*store)(const struct mk_lane* lane, int64_t slot, const float* x);
};
DECLARE_COLUMNS(kept, kept);
