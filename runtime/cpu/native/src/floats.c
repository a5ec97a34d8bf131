#include "floats.h"
#include "products_lanes.h"
#include "widen.h"

#if defined(__AVX512F__)
enum { PANELS = 2, TILE = 12 }; /* panels and rows whose sums stay in registers */
#elif defined(MK_NO_SIMD)
enum { PANELS = 1, TILE = 1 };
#else
enum { PANELS = 1, TILE = 6 };
#endif

enum { AHEAD = 1024 }; /* bytes of a row */

/* Sixteen outputs in lanes, one k behind the other. */
typedef float panel[MK_DEEP][LANES];

/* Rows of the matrix whose weights become a panel; the last one again for rows that are not there. */
struct rows {
  const char* at[LANES];
  const char* end; /* of the matrix */
};

static struct rows rows_from(const struct mk_matrix* w, int n0) {
  struct rows r;
  for (int i = 0; i < LANES; i++) r.at[i] = (const char*)w->codes + (n0 + i < w->n ? n0 + i : w->n - 1) * w->stride;
  r.end = (const char*)w->codes + (w->n - 1) * w->stride + (int64_t)w->k * (w->type == MK_F32 ? 4 : 2);
  return r;
}

/* Pairs of bf16 are turned over as they lie, and then taken apart. */
INLINE void turn_bf16(const struct rows* r, int k, int count, float (*to)[LANES]) {
  vi pairs[LANES];
  vi_transpose(r->at, (size_t)k * 2, count * 2, r->end, pairs);
  UNROLL for (int i = 0; i < LANES; i++) {
    if (2 * i < count) vi_store(to[2 * i], vi_left(pairs[i], 16));
    if (2 * i + 1 < count) vi_store(to[2 * i + 1], vi_and(pairs[i], vi_set((int32_t)0xffff0000)));
  }
}

INLINE void turn_f32(const struct rows* r, int k, int count, float (*to)[LANES]) {
  vi words[LANES];
  vi_transpose(r->at, (size_t)k * 4, count * 4, r->end, words);
  UNROLL for (int i = 0; i < LANES; i++)
    if (i < count) vi_store(to[i], words[i]);
}

static void turn_any(const struct mk_matrix* w, int n0, int k, int count, float (*to)[LANES]) {
  float lying[LANES][LANES];
  struct rows r = {.end = (const char*)(lying + LANES)};
  for (int i = 0; i < LANES; i++) {
    vf_store(lying[i], widen(w, n0 + i < w->n ? n0 + i : w->n - 1, k, count));
    r.at[i] = (const char*)lying[i];
  }
  turn_f32(&r, 0, LANES, to);
}

/* Weights [k, k + count) of sixteen outputs. */
static void fill(const struct mk_matrix* w, const struct rows* r, int n0, int k, int count, panel to) {
  if (w->across) { /* outputs lie in lanes already */
    const int lanes = w->n - n0 < LANES ? w->n - n0 : LANES;
    for (int i = 0; i < count; i++) vf_store(to[i], widen(w, k + i, n0, lanes));
    return;
  }
  const int bf16 = w->kind == MK_FLOATS && w->type == MK_BF16, f32 = w->kind == MK_FLOATS && w->type == MK_F32;
  const int step = bf16 ? 2 * LANES : LANES;
  for (int i = 0, some; i < count; i += step) {
    some = count - i < step ? count - i : step;
    if (bf16 && some == step) turn_bf16(r, k + i, step, to + i);
    else if (bf16) turn_bf16(r, k + i, some, to + i);
    else if (f32 && some == step) turn_f32(r, k + i, step, to + i);
    else if (f32) turn_f32(r, k + i, some, to + i);
    else turn_any(w, n0, k + i, some, to + i);
  }
}

/* Bring near what follows by AHEAD bytes in these rows, or in those of the next strip: waiting for memory is most of
 * a product with few rows. */
static void fetch(const struct mk_matrix* w, int n0, int k, int count) {
  const int64_t bits = w->kind != MK_FLOATS ? w->bits : w->type == MK_F32 ? 32 : 16, whole = w->k * bits / 8;
  int64_t at = k * bits / 8 + AHEAD;
  if (at >= whole) at -= whole, n0 += MK_STRIP;
  for (int n = n0; n < n0 + LANES && n < w->n; n++)
    for (int64_t b = 0; b < count * bits / 8; b += 64) __builtin_prefetch((const char*)w->codes + n * w->stride + at + b);
}

/* sums[row][output] += the block's chain, for R rows and P panels. */
INLINE void tile(const panel* panels, const float* x, int count, float* sums, const int R, const int P) {
  vf a[TILE][PANELS];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) a[r][p] = vf_set(0);
  for (int k = 0; k < count; k++) {
    vf w[PANELS];
    UNROLL for (int p = 0; p < P; p++) w[p] = vf_load(panels[p][k]);
    UNROLL for (int r = 0; r < R; r++) {
      const vf xk = vf_set(x[r * MK_DEEP + k]);
      UNROLL for (int p = 0; p < P; p++) a[r][p] = vf_fma(xk, w[p], a[r][p]);
    }
  }
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) {
    float* sum = sums + r * MK_STRIP + p * LANES;
    vf_store(sum, vf_add(vf_load(sum), a[r][p]));
  }
}

INLINE void tiles(const panel* panels, const float* x, int count, float* sums, int rows, const int P) {
  for (int n; rows; rows -= n, x += n * MK_DEEP, sums += n * MK_STRIP) {
    n = rows < TILE ? rows : TILE;
    switch (n) {
#define OF(R) \
  case R: \
    if (R <= TILE) tile(panels, x, count, sums, R <= TILE ? R : 1, P); \
    break;
      OF(1) OF(2) OF(3) OF(4) OF(5) OF(6) OF(7) OF(8) OF(9) OF(10) OF(11) OF(12)
#undef OF
    }
  }
}

static void strip(const struct mk_matrix* w, int n0, const char* x, int rows, float* sums) {
  _Alignas(64) panel panels[MK_STRIP / LANES];
  const int wide = w->n - n0 > LANES ? 2 : 1, few = rows <= MK_TOGETHER;
  const size_t row = mk_float_row_bytes(w->k) / 4;
  struct rows from[2];
  if (w->kind == MK_FLOATS && !w->across)
    for (int p = 0; p < wide; p++) from[p] = rows_from(w, n0 + p * LANES);
  memset(sums, 0, sizeof(float) * MK_STRIP * (size_t)rows);
  for (int k = 0; k < w->k; k += MK_DEEP) {
    const int count = w->k - k < MK_DEEP ? w->k - k : MK_DEEP;
    for (int p = 0; p < wide; p++) {
      if (few && !w->across) fetch(w, n0 + p * LANES, k, count);
      fill(w, &from[p], n0 + p * LANES, k, count, panels[p]);
    }
    for (int first = 0; first < rows; first += MK_TOGETHER) {
      const int together = rows - first < MK_TOGETHER ? rows - first : MK_TOGETHER;
      const float* group = (const float*)x + (size_t)first * row + (size_t)k * (size_t)together;
      float* to = sums + first * MK_STRIP;
      if (PANELS == 2 && wide == 2) tiles(panels, group, count, to, together, PANELS);
      else
        for (int p = 0; p < wide; p++) tiles(panels + p, group, count, to + p * LANES, together, 1);
    }
  }
}

static void place(const float* x, int k, int r, int rows, char* all) {
  const int first = r - r % MK_TOGETHER, together = rows - first < MK_TOGETHER ? rows - first : MK_TOGETHER;
  float* to = (float*)all + (size_t)first * (mk_float_row_bytes(k) / 4) + (size_t)(r - first) * MK_DEEP;
  for (int i = 0; i < k; i += MK_DEEP, to += together * MK_DEEP)
    memcpy(to, x + i, sizeof(float) * (size_t)(k - i < MK_DEEP ? k - i : MK_DEEP));
}

static void row(const struct mk_matrix* w, int64_t r, float* to) {
  int i = 0;
  for (; i + LANES <= w->k; i += LANES) vf_store(to + i, widen(w, r, i, LANES));
  if (i < w->k) vf_store_some(to + i, widen(w, r, i, w->k - i), w->k - i);
}

const struct floats COLUMN(floats) = {place, strip, row};
