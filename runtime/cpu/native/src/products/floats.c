#include "products/floats.h"
#include "products/dot.h"
#include "products/widen.h"
#include "simd/lines.h"

/* Rows whose sums stay in registers: of one panel of weights, and of two. */
#if defined(__AVX512F__)
enum { TILE = 12, TILE_OF_TWO = 12 };
#elif defined(MK_NO_SIMD)
enum { TILE = 4, TILE_OF_TWO = 0 };
#else
enum { TILE = 6, TILE_OF_TWO = 3 };
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

/* While bytes `at` to `at` + 64 of a panel's rows are worked on, the same share of the panel that is `ahead` panels behind
 * it comes into the cache, from here on, line after line as it lies: see `fetch` of products/codes.h. */
INLINE const char* lines_of(const struct rows* r, size_t at, int ahead) {
  return r->at[0] + LANES * at + (size_t)ahead * LANES * r->bytes;
}

/* Words are turned over as they lie, and then taken apart. */
INLINE void turn(const struct rows* r, int k, int count, float (*to)[LANES], const int type) {
  const int size = type == MK_F32 ? 4 : 2, parts = 4 / size;
  vi words[LANES];
  bring_lines(lines_of(r, (size_t)k * size, MK_STRIP / LANES), LANES);
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

/* `widen` of sixteen columns of affine codes, row after row, for which a division would take longer than all the rest. */
INLINE void columns_of(const struct mk_matrix* w, int n0, int k, int count, panel to, const int bits) {
  const size_t groups = (size_t)(w->n / w->group);
  size_t g = (size_t)k * groups + (size_t)(n0 / w->group);
  const uint8_t* row = (const uint8_t*)w->codes + k * w->stride;
  const int64_t stride = w->stride;
  const int type = w->type;
  const void *scales = w->scales, *biases = w->biases;
  for (int i = 0; i < count; i++, row += stride, g += groups)
    vf_store(to[i], vf_add(vf_mul(code_floats16(row, n0, bits), vf_set(one_float(scales, type, g))), vf_set(one_float(biases, type, g))));
}

/* Weights [k, k + count) of sixteen outputs. */
static void fill(const struct mk_matrix* w, const struct rows* r, int n0, int k, int count, panel to) {
  if (w->across) { /* outputs lie in lanes already */
    const int lanes = w->n - n0 < LANES ? w->n - n0 : LANES;
    if (w->kind == MK_AFFINE && w->bits == 4) return columns_of(w, n0, k, count, to, 4);
    if (w->kind == MK_AFFINE && w->bits == 8) return columns_of(w, n0, k, count, to, 8);
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
  vf a[TILE][2];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) a[r][p] = vf_set(0);
  for (int k = 0; k < count; k++) {
    vf w[2];
    __builtin_prefetch(x + R * MK_DEEP + k * LANES); /* the next tile's rows: those of a prompt come from the third cache */
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

/* `tile` for a whole block and one panel, the weights of which come from memory and are turned over between the sums: that
 * costs little there, and as much as five rows before them. keep: where weights are written for other rows, or NULL. */
INLINE void tile_of(const struct rows* from, int k, const float* x, float* sums, float (*keep)[LANES], const int type, const int R) {
  const int size = type == MK_F32 ? 4 : 2, parts = 4 / size, step = parts * LANES;
  vf a[TILE];
  UNROLL for (int r = 0; r < R; r++) a[r] = vf_set(0);
  for (int first = 0; first < MK_DEEP; first += step) {
    vi words[LANES];
    const char* lines = lines_of(from, (size_t)(k + first) * size, keep ? MK_STRIP / LANES : 1);
    vi_transpose(from->at, (size_t)(k + first) * size, 64, from->end, words);
    UNROLL for (int i = 0; i < LANES; i++) UNROLL for (int part = 0; part < parts; part++) {
      const int at = first + i * parts + part;
      if (!part) bring_lines(lines + 64 * i, 1);
      const vf weight = part_of(words[i], type, part);
      if (keep) vf_store(keep[at], weight);
      UNROLL for (int r = 0; r < R; r++) a[r] = vf_fma(vf_set(x[r * MK_DEEP + at]), weight, a[r]);
    }
  }
  UNROLL for (int r = 0; r < R; r++) vf_store(sums + r * MK_STRIP, vf_add(vf_load(sums + r * MK_STRIP), a[r]));
}

#define TYPES(keep, R) \
  if (type == MK_BF16) tile_of(from, k, x, sums, keep, MK_BF16, R); \
  else if (type == MK_F16) tile_of(from, k, x, sums, keep, MK_F16, R); \
  else tile_of(from, k, x, sums, keep, MK_F32, R)

/* Not one function with the next: GCC 12 then finds registers for neither. */
static void first_of_many(const struct rows* from, int type, int k, const float* x, float* sums, panel keep) { TYPES(keep, TILE); }

static void all_of_few(const struct rows* from, int type, int k, const float* x, float* sums, int rows) {
  switch (rows) {
#define OF(R) \
  case R: \
    if (R <= TILE) { TYPES(NULL, R <= TILE ? R : 1); } \
    break;
    OF(1) OF(2) OF(3) OF(4) OF(5) OF(6) OF(7) OF(8) OF(9) OF(10) OF(11) OF(12)
  }
}
#undef TYPES
#undef OF

INLINE void tile_of_strip(const panel* panels, int wide, const float* x, int count, float* sums, const int R) {
  if (R <= TILE_OF_TWO && wide == 2) tile(panels, x, count, sums, R, 2);
  else
    for (int p = 0; p < wide; p++) tile(panels + p, x, count, sums + p * LANES, R, 1);
}

/* Rows are shared out evenly among as few tiles as can be: in one of few rows, sums would wait for themselves. */
static void tiles(const panel* panels, int wide, const float* x, int count, float* sums, int rows) {
  for (int left = (rows + TILE - 1) / TILE, n; left; left--, rows -= n, x += n * MK_DEEP, sums += n * MK_STRIP) {
    n = (rows + left - 1) / left;
    switch (n) {
#define OF(R) \
  case R: \
    if (R <= TILE) tile_of_strip(panels, wide, x, count, sums, R <= TILE ? R : 1); \
    break;
      OF(1) OF(2) OF(3) OF(4) OF(5) OF(6) OF(7) OF(8) OF(9) OF(10) OF(11) OF(12)
#undef OF
    }
  }
}

/* Few rows: one panel after the other, since two that come from memory in turns are waited for twice as long. */
static void strip_of_few(const struct mk_matrix* w, int n0, const float* placed, int together, int rows, float* sums) {
  for (int p = 0; p < MK_STRIP && n0 + p < w->n; p += LANES) {
    const struct rows from = rows_from(w, n0 + p);
    const float* x = placed;
    int k = 0;
    for (; k + MK_DEEP <= w->k; k += MK_DEEP, x += (size_t)together * MK_DEEP) all_of_few(&from, w->type, k, x, sums + p, rows);
    if (k == w->k) continue;
    _Alignas(64) panel rest;
    fill(w, &from, n0 + p, k, w->k - k, rest);
    tiles(&rest, 1, x, w->k - k, sums + p, rows);
  }
}

static void strip_of_many(const struct mk_matrix* w, int n0, const float* x, int together, int rows, float* sums) {
  _Alignas(64) panel panels[MK_STRIP / LANES];
  const int wide = w->n - n0 > LANES ? 2 : 1, plain = w->kind == MK_FLOATS && !w->across;
  struct rows from[2];
  for (int p = 0; p < wide && plain; p++) from[p] = rows_from(w, n0 + p * LANES);
  for (int k = 0; k < w->k; k += MK_DEEP, x += (size_t)together * MK_DEEP) {
    const int count = w->k - k < MK_DEEP ? w->k - k : MK_DEEP;
    const int whole = plain && count == MK_DEEP && rows > TILE, done = whole ? TILE : 0;
    for (int p = 0; p < wide; p++) {
      if (!whole) fill(w, &from[p], n0 + p * LANES, k, count, panels[p]);
      else first_of_many(&from[p], w->type, k, x, sums + p * LANES, panels[p]);
    }
    tiles(panels, wide, x + done * MK_DEEP, count, sums + done * MK_STRIP, rows - done);
  }
}

static void strip(const struct mk_matrix* w, int n0, const char* placed, int together, int rows, float* sums) {
  memset(sums, 0, sizeof(float) * MK_STRIP * (size_t)rows);
  const int few = rows <= TILE && w->kind == MK_FLOATS && !w->across;
  (few ? strip_of_few : strip_of_many)(w, n0, (const float*)placed, together, rows, sums);
}

static void place(const float* x, int k, int r, int rows, char* all) {
  float* to = (float*)all + (size_t)r * MK_DEEP;
  for (int i = 0; i < k; i += MK_DEEP, to += (size_t)rows * MK_DEEP)
    memcpy(to, x + i, sizeof(float) * (size_t)(k - i < MK_DEEP ? k - i : MK_DEEP));
}

static void row(const struct mk_matrix* w, int64_t r, float* to) {
  int i = 0;
  for (; i + LANES <= w->k; i += LANES) vf_store(to + i, widen(w, r, i, LANES));
  if (i < w->k) vf_store_some(to + i, widen(w, r, i, w->k - i), w->k - i);
}

const struct floats COLUMN(floats) = {place, strip, row};
