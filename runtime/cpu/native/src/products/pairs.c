#include "products/pairs.h"
#include "products/dot.h"
#include "products/widen.h"
#include "simd/lines.h"

/* Tokens whose sums stay in registers: of the first product with two chains each, or with all four, and of the second
 * with PANELS sixteens of outputs. */
#if defined(__AVX512F__)
enum { NARROW = 8, WHOLE = 4, TILE = 8, PANELS = 2 };
#elif defined(MK_NO_SIMD)
enum { NARROW = 1, WHOLE = 1, TILE = 1, PANELS = 1 };
#else
enum { NARROW = 2, WHOLE = 1, TILE = 4, PANELS = 1 };
#endif

/* Sixteen numbers from `at` on, of which so many are there; zeros behind them. */
INLINE vf numbers(const void* from, size_t at, size_t there, const int type) {
  const size_t size = type == MK_F32 ? 4 : 2;
  const char* p = (const char*)from + at * size;
  char some[LANES * 4] = {0};
  return floats16(there >= LANES ? p : memcpy(some, p, there * size), type);
}

INLINE void store(float* to, vf a, int lanes) {
  if (lanes < LANES) vf_store_some(to, a, lanes);
  else vf_store(to, a);
}

INLINE void chain(const void* down, size_t at, size_t readable, float const* const* x, int i, vf (*a)[4], int c, const int type, const int R) {
  const vf w = numbers(down, at, readable, type);
  UNROLL for (int r = 0; r < R; r++) a[r][c] = vf_fma(vf_set(x[r][i]), w, a[r][c]);
}

enum { AHEAD = 2048 }; /* bytes to what is called for: it is read once, and there is little to do with it */

/* Ranks [v, v + 16) of R tokens: C / 2 halves from `first` on. Lanes behind the last rank have numbers of the next k, and are
 * dropped. */
INLINE void narrowed(const void* down, size_t readable, int k, int rank, int v, const float* const* x, int first, float* const* to,
                     const int type, const int R, const int C) {
  vf a[NARROW][4];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) a[r][c] = vf_set(0);
  const size_t each = (size_t)rank, bytes = type == MK_F32 ? 4 : 2;
  const int second = k < 2 ? k : (k + 3) / 4 * 2, begin = first * second, last = begin + (C / 2 - 1) * second;
  int i = 0; /* from where a half begins; the second one is not the longer one */
  for (; last + i + 2 <= (last ? k : second) && (size_t)(last + i + 1) * each + (size_t)v + LANES <= readable; i += 2)
    UNROLL for (int c = 0; c < C; c++) {
      const int at = begin + c / 2 * second + c % 2 + i;
      const size_t from = (size_t)at * each + (size_t)v;
      if (c % 2 == 0) bring_lines((const char*)down + from * bytes + AHEAD, 1);
      chain(down, from, LANES, x, at, a, c, type, R);
    }
  for (; i < second; i += 2) UNROLL for (int c = 0; c < C; c++) {
    const int at = begin + c / 2 * second + c % 2 + i, stop = begin + c / 2 * second ? k : second;
    const size_t from = (size_t)at * each + (size_t)v;
    if (at < stop && at < k) chain(down, from, readable - from, x, at, a, c, type, R);
  }
  const int lanes = rank - v < LANES ? rank - v : LANES;
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c += 2)
    store(to[r] + (first + c / 2) * rank + v, vf_add(a[r][c], a[r][c + 1]), lanes);
}

/* For each type and each number of tokens a function of its own. */
#define EACH_TYPE(R, MOST, CALL) \
  case R: \
    if (R > MOST) break; \
    if (type == MK_BF16) CALL(MK_BF16, R <= MOST ? R : 1); \
    else if (type == MK_F16) CALL(MK_F16, R <= MOST ? R : 1); \
    else CALL(MK_F32, R <= MOST ? R : 1); \
    break;
#define UP_TO_4(MOST, CALL) EACH_TYPE(1, MOST, CALL) EACH_TYPE(2, MOST, CALL) EACH_TYPE(3, MOST, CALL) EACH_TYPE(4, MOST, CALL)
#define UP_TO_8(MOST, CALL) \
  UP_TO_4(MOST, CALL) EACH_TYPE(5, MOST, CALL) EACH_TYPE(6, MOST, CALL) EACH_TYPE(7, MOST, CALL) EACH_TYPE(8, MOST, CALL)

static void narrow(const void* down, int type, size_t readable, int k, int rank, const float* const* x, int tokens, int first, int halves,
                   float* const* to) {
  for (int v = 0; v < rank; v += LANES)
    for (int at = 0, n; at < tokens; at += n) {
      n = tokens - at < NARROW ? tokens - at : NARROW;
      if (n <= WHOLE && halves == MK_HALVES) {
#define CALL(TYPE, R) narrowed(down, readable, k, rank, v, x + at, 0, to + at, TYPE, R, 4)
        switch (n) { UP_TO_4(WHOLE, CALL) }
#undef CALL
        continue;
      }
      for (int half = first; half < first + halves; half++) {
#define CALL(TYPE, R) narrowed(down, readable, k, rank, v, x + at, half, to + at, TYPE, R, 2)
        switch (n) { UP_TO_8(NARROW, CALL) }
#undef CALL
      }
    }
}

/* R tokens, P sixteens of outputs from n0 + i on, the last of which has `there` numbers. */
INLINE void pair(const struct mk_term* t, int n0, int i, size_t there, const float* const* narrow, float* const* y, size_t apart,
                 const int type, const int R, const int P) {
  vf a[TILE][2 * PANELS];
  size_t from[2 * PANELS];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) a[r][p] = vf_set(0);
  UNROLL for (int p = 0; p < P; p++) from[p] = mk_in_strips(n0 + i + p * LANES, (size_t)t->rank * MK_STRIP);
  for (int j = 0; j < t->rank; j++) {
    vf w[2 * PANELS];
    UNROLL for (int p = 0; p < P; p++) w[p] = numbers(t->up, from[p] + (size_t)(j * MK_STRIP), LANES, type);
    UNROLL for (int r = 0; r < R; r++) {
      const vf by = vf_set(narrow[r][t->at + j]);
      UNROLL for (int p = 0; p < P; p++) a[r][p] = vf_fma(by, w[p], a[r][p]);
    }
  }
  UNROLL for (int p = 0; p < P; p++) {
    const size_t at = mk_in_strips(i + p * LANES, apart);
    UNROLL for (int r = 0; r < R; r++) store(y[r] + at, vf_add(numbers(y[r] + at, 0, there, MK_F32), a[r][p]), (int)there);
  }
}

INLINE void pairs_of(const struct mk_term* t, int n0, int count, const float* const* narrow, float* const* y, size_t apart, const int type,
                     const int R) {
  int i = 0;
  if (R <= TILE / 2) /* few tokens leave registers for twice as many outputs */
    for (; i + 2 * PANELS * LANES <= count; i += 2 * PANELS * LANES) pair(t, n0, i, LANES, narrow, y, apart, type, R, 2 * PANELS);
  for (; i + PANELS * LANES <= count; i += PANELS * LANES) pair(t, n0, i, LANES, narrow, y, apart, type, R, PANELS);
  for (; i + LANES <= count; i += LANES) pair(t, n0, i, LANES, narrow, y, apart, type, R, 1);
  if (i < count) pair(t, n0, i, (size_t)(count - i), narrow, y, apart, type, R, 1);
}

static void with_vectors(const struct mk_term* t, int n0, int count, const float* base, float* y, size_t apart) {
  const vf scale = vf_set(t->scale);
  for (int i = 0; i < count; i += LANES) {
    const size_t there = count - i < LANES ? (size_t)(count - i) : LANES, at = (size_t)(n0 + i);
    float* to = y + mk_in_strips(i, apart);
    vf sum = numbers(to, 0, there, MK_F32);
    if (t->factor) {
      const vf own = t->own ? numbers(t->own, at, there, MK_F32) : vf_set(0);
      const vf product = vf_mul(vf_sub(numbers(base, (size_t)i, there, MK_F32), own), numbers(t->factor, at, there, MK_F32));
      sum = vf_add(sum, vf_mul(product, scale));
    }
    if (t->bias) sum = vf_add(sum, vf_mul(numbers(t->bias, at, there, MK_F32), scale));
    store(to, sum, (int)there);
  }
}

static void widen_tokens(const struct mk_term* t, int n0, int count, const float* const* narrow, int tokens, const float* const* base,
                         float* const* y, size_t apart) {
  const int type = t->type;
  for (int first = 0, n; t->up && first < tokens; first += n) {
    n = tokens - first < TILE ? tokens - first : TILE;
#define CALL(TYPE, R) pairs_of(t, n0, count, narrow + first, y + first, apart, TYPE, R)
    switch (n) { UP_TO_8(TILE, CALL) }
#undef CALL
  }
  for (int token = 0; (t->factor || t->bias) && token < tokens; token++) with_vectors(t, n0, count, base[token], y[token], apart);
}

const struct pairs COLUMN(pairs) = {narrow, widen_tokens};
