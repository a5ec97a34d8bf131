#include "pairs.h"
#include "products_lanes.h"
#include "widen.h"

/* Tokens whose sums stay in registers: of the first product with four chains each, of the second with PANELS
 * sixteens of outputs. */
#if defined(__AVX512F__)
enum { NARROW = 4, TILE = 8, PANELS = 2 };
#elif defined(MK_NO_SIMD)
enum { NARROW = 1, TILE = 1, PANELS = 1 };
#else
enum { NARROW = 1, TILE = 4, PANELS = 1 };
#endif

/* Sixteen numbers from `at` on, of which so many are there; zeros behind them. */
INLINE vf numbers(const void* from, size_t at, size_t there, const int type) {
  const size_t size = type == MK_F32 ? 4 : 2;
  const char* p = (const char*)from + at * size;
  char some[LANES * 4] = {0};
  return floats16(there >= LANES ? p : memcpy(some, p, there * size), type);
}

INLINE void chain(const void* down, size_t readable, int i, int rank, int v, const float* const* x, vf (*a)[4], int c, const int type,
                  const int R) {
  const size_t at = (size_t)i * (size_t)rank + (size_t)v;
  const vf w = numbers(down, at, readable - at, type);
  UNROLL for (int r = 0; r < R; r++) a[r][c] = vf_fma(vf_set(x[r][i]), w, a[r][c]);
}

/* Ranks [v, v + 16) of R tokens. Lanes behind the last rank have numbers of the next k, and are dropped. */
INLINE void narrowed(const void* down, size_t readable, int k, int rank, int v, const float* const* x, float scale, float* const* to,
                     const int type, const int R) {
  vf a[NARROW][4];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < 4; c++) a[r][c] = vf_set(0);
  int i = 0;
  for (; i + 4 <= k; i += 4) UNROLL for (int c = 0; c < 4; c++) chain(down, readable, i + c, rank, v, x, a, c, type, R);
  UNROLL for (int c = 0; c < 3; c++)
    if (i + c < k) chain(down, readable, i + c, rank, v, x, a, c, type, R);
  const int lanes = rank - v < LANES ? rank - v : LANES;
  UNROLL for (int r = 0; r < R; r++) {
    const vf sum = vf_mul(vf_add(vf_add(a[r][0], a[r][1]), vf_add(a[r][2], a[r][3])), vf_set(scale));
    vf_store_some(to[r] + v, sum, lanes);
  }
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

static void narrow(const void* down, int type, size_t readable, int k, int rank, const float* const* x, int tokens, float scale,
                   float* const* to) {
  for (int v = 0; v < rank; v += LANES)
    for (int first = 0, n; first < tokens; first += n) {
      n = tokens - first < NARROW ? tokens - first : NARROW;
#define CALL(TYPE, R) narrowed(down, readable, k, rank, v, x + first, scale, to + first, TYPE, R)
      switch (n) { UP_TO_4(NARROW, CALL) }
#undef CALL
    }
}

/* R tokens, P sixteens of outputs from n0 + i on, the last of which has `there` numbers. */
INLINE void pair(const struct mk_term* t, int n0, int i, size_t there, const float* const* narrow, float* const* y, const int type, const int R,
                 const int P) {
  vf a[TILE][2 * PANELS];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) a[r][p] = vf_set(0);
  for (int j = 0; j < t->rank; j++) {
    vf w[2 * PANELS];
    UNROLL for (int p = 0; p < P; p++) w[p] = numbers(t->up, (size_t)j * (size_t)t->n + (size_t)(n0 + i + p * LANES), there, type);
    UNROLL for (int r = 0; r < R; r++) {
      const vf by = vf_set(narrow[r][t->at + j]);
      UNROLL for (int p = 0; p < P; p++) a[r][p] = vf_fma(by, w[p], a[r][p]);
    }
  }
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < P; p++) {
    float* to = y[r] + i + p * LANES;
    const vf sum = vf_add(numbers(to, 0, there, MK_F32), a[r][p]);
    if (there < LANES) vf_store_some(to, sum, (int)there);
    else vf_store(to, sum);
  }
}

INLINE void pairs_of(const struct mk_term* t, int n0, int count, const float* const* narrow, float* const* y, const int type, const int R) {
  int i = 0;
  if (R <= TILE / 2) /* few tokens leave registers for twice as many outputs */
    for (; i + 2 * PANELS * LANES <= count; i += 2 * PANELS * LANES) pair(t, n0, i, LANES, narrow, y, type, R, 2 * PANELS);
  for (; i + PANELS * LANES <= count; i += PANELS * LANES) pair(t, n0, i, LANES, narrow, y, type, R, PANELS);
  for (; i + LANES <= count; i += LANES) pair(t, n0, i, LANES, narrow, y, type, R, 1);
  if (i < count) pair(t, n0, i, (size_t)(count - i), narrow, y, type, R, 1);
}

static void with_vectors(const struct mk_term* t, int n0, int count, const float* base, float* y) {
  const vf scale = vf_set(t->scale);
  for (int i = 0; i < count; i += LANES) {
    const size_t there = count - i < LANES ? (size_t)(count - i) : LANES, at = (size_t)(n0 + i);
    vf sum = numbers(y, (size_t)i, there, MK_F32);
    if (t->factor) {
      const vf own = t->own ? numbers(t->own, at, there, MK_F32) : vf_set(0);
      const vf product = vf_mul(vf_sub(numbers(base, (size_t)i, there, MK_F32), own), numbers(t->factor, at, there, MK_F32));
      sum = vf_add(sum, vf_mul(product, scale));
    }
    if (t->bias) sum = vf_add(sum, vf_mul(numbers(t->bias, at, there, MK_F32), scale));
    vf_store_some(y + i, sum, (int)there);
  }
}

static void widen_tokens(const struct mk_term* t, int n0, int count, const float* const* narrow, int tokens, const float* const* base,
                         float* const* y) {
  const int type = t->type;
  for (int first = 0, n; t->up && first < tokens; first += n) {
    n = tokens - first < TILE ? tokens - first : TILE;
#define CALL(TYPE, R) pairs_of(t, n0, count, narrow + first, y + first, TYPE, R)
    switch (n) { UP_TO_8(TILE, CALL) }
#undef CALL
  }
  for (int token = 0; (t->factor || t->bias) && token < tokens; token++) with_vectors(t, n0, count, base[token], y[token]);
}

const struct pairs COLUMN(pairs) = {narrow, widen_tokens};
