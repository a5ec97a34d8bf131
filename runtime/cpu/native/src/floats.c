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

/* Sixteen outputs in lanes, one k behind the other. */
typedef float panel[MK_DEEP][LANES];

/* Rows of the matrix whose weights become a panel; the last one again for rows that are not there. */
struct rows {
  const char* at[LANES];
  const char* end; /* of the matrix */
  size_t bytes;    /* from row to row */
};

static struct rows rows_from(const struct mk_matrix* w, int n0) {
  struct rows r;
  for (int i = 0; i < LANES; i++) r.at[i] = (const char*)w->codes + (n0 + i < w->n ? n0 + i : w->n - 1) * w->stride;
  r.bytes = (size_t)w->stride;
  r.end = (const char*)w->codes + (w->n - 1) * w->stride + (int64_t)w->k * (w->type == MK_F32 ? 4 : 2);
  return r;
}

/* Float16 in the lower halves of words; exact, infinities and NaN included. */
INLINE vf wide_half(vi bits) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(bits));
#else
  const vf sized = vf_mul(vi_as_float(vi_left(vi_and(bits, vi_set(0x7fff)), 13)), vf_set(0x1p112f));
  const vf size = vf_if_less(sized, vf_set(65536), sized, vi_as_float(vi_or(vi_of_float(sized), vi_set(0x7f800000))));
  return vi_as_float(vi_or(vi_of_float(size), vi_left(vi_and(bits, vi_set(0x8000)), 16)));
#endif
}

/* The numbers that a word of each row holds: two, or one of MK_F32. */
INLINE vf part_of(vi word, const int type, const int part) {
  if (type == MK_F32) return vi_as_float(word);
  if (type == MK_F16) return wide_half(part ? vi_right(word, 16) : word);
  return vi_as_float(part ? vi_and(word, vi_set((int32_t)0xffff0000)) : vi_left(word, 16));
}

/* While bytes `at` to `at` + 64 of a panel's rows are worked on, the same share of that of the next strip comes into the
 * second cache, line after line as it lies: see `fetch` of products_codes.h. */
INLINE void fetch(const struct rows* r, size_t at) {
  const char* line = r->at[0] + LANES * at + MK_STRIP * r->bytes;
  UNROLL for (int i = 0; i < LANES; i++) __builtin_prefetch(line + 64 * i, 0, 2);
}

/* Words are turned over as they lie, and then taken apart. */
INLINE void turn(const struct rows* r, int k, int count, float (*to)[LANES], const int type) {
  const int size = type == MK_F32 ? 4 : 2, parts = 4 / size;
  vi words[LANES];
  fetch(r, (size_t)k * size);
  vi_transpose(r->at, (size_t)k * size, count * size, r->end, words);
  UNROLL for (int i = 0; i < LANES; i++) UNROLL for (int part = 0; part < parts; part++)
    if (i * parts + part < count) vf_store(to[i * parts + part], part_of(words[i], type, part));
}

static void turn_any(const struct mk_matrix* w, int n0, int k, int count, float (*to)[LANES]) {
  float lying[LANES][LANES];
  struct rows r = {.end = (const char*)(lying + LANES), .bytes = 0};
  for (int i = 0; i < LANES; i++) {
    vf_store(lying[i], widen(w, n0 + i < w->n ? n0 + i : w->n - 1, k, count));
    r.at[i] = (const char*)lying[i];
  }
  turn(&r, 0, LANES, to, MK_F32);
}

/* Weights [k, k + count) of sixteen outputs. */
static void fill(const struct mk_matrix* w, const struct rows* r, int n0, int k, int count, panel to) {
  if (w->across) { /* outputs lie in lanes already */
    const int lanes = w->n - n0 < LANES ? w->n - n0 : LANES;
    for (int i = 0; i < count; i++) vf_store(to[i], widen(w, k + i, n0, lanes));
    return;
  }
  const int step = w->kind == MK_FLOATS && w->type != MK_F32 ? 2 * LANES : LANES;
  for (int i = 0, some; i < count; i += step) {
    some = count - i < step ? count - i : step;
    if (w->kind != MK_FLOATS) turn_any(w, n0, k + i, some, to + i);
    else if (w->type == MK_BF16) turn(r, k + i, some, to + i, MK_BF16);
    else if (w->type == MK_F16) turn(r, k + i, some, to + i, MK_F16);
    else turn(r, k + i, some, to + i, MK_F32);
  }
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

/* Rows that meet weights as they come from memory, of which nothing is kept: as many as have their sums in registers. */
#if defined(__AVX512F__)
enum { FEW = 8 };
#else
enum { FEW = 4 };
#endif

/* sums[row][output] += the chain of a whole block, as `tile` has it. */
INLINE void few(const struct rows* from, int k, const float* x, float* sums, const int type, const int R) {
  const int size = type == MK_F32 ? 4 : 2, parts = 4 / size, step = parts * LANES;
  vf a[FEW];
  UNROLL for (int r = 0; r < R; r++) a[r] = vf_set(0);
  for (int first = 0; first < MK_DEEP; first += step) {
    vi words[LANES];
    fetch(from, (size_t)(k + first) * size);
    vi_transpose(from->at, (size_t)(k + first) * size, 64, from->end, words);
    UNROLL for (int i = 0; i < LANES; i++) UNROLL for (int part = 0; part < parts; part++) {
      const vf weight = part_of(words[i], type, part);
      UNROLL for (int r = 0; r < R; r++) a[r] = vf_fma(vf_set(x[r * MK_DEEP + first + i * parts + part]), weight, a[r]);
    }
  }
  UNROLL for (int r = 0; r < R; r++) vf_store(sums + r * MK_STRIP, vf_add(vf_load(sums + r * MK_STRIP), a[r]));
}

static void few_rows(const struct rows* from, int type, int k, const float* x, float* sums, int rows) {
#define OF(R) \
  case R: \
    if (R > FEW) break; \
    if (type == MK_BF16) few(from, k, x, sums, MK_BF16, R <= FEW ? R : 1); \
    else if (type == MK_F16) few(from, k, x, sums, MK_F16, R <= FEW ? R : 1); \
    else few(from, k, x, sums, MK_F32, R <= FEW ? R : 1); \
    break;
  switch (rows) { OF(1) OF(2) OF(3) OF(4) OF(5) OF(6) OF(7) OF(8) }
#undef OF
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
  const int wide = w->n - n0 > LANES ? 2 : 1;
  const int direct = rows <= FEW && w->kind == MK_FLOATS && !w->across;
  const size_t row = mk_float_row_bytes(w->k) / 4;
  struct rows from[2];
  if (w->kind == MK_FLOATS && !w->across)
    for (int p = 0; p < wide; p++) from[p] = rows_from(w, n0 + p * LANES);
  memset(sums, 0, sizeof(float) * MK_STRIP * (size_t)rows);
  for (int k = 0; k < w->k; k += MK_DEEP) {
    const int count = w->k - k < MK_DEEP ? w->k - k : MK_DEEP;
    if (direct && count == MK_DEEP) {
      for (int p = 0; p < wide; p++) few_rows(&from[p], w->type, k, (const float*)x + (size_t)k * (size_t)rows, sums + p * LANES, rows);
      continue;
    }
    for (int p = 0; p < wide; p++) fill(w, &from[p], n0 + p * LANES, k, count, panels[p]);
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
