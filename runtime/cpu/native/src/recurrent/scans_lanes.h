/* What the columns of all scans share. */
#pragma once
#include "recurrent/scans.h"
#include "simd/functions.h"

INLINE int lesser(int a, int b) { return a < b ? a : b; }

/* n lanes of the sixteen, zeros behind them. */
INLINE vf take(const float* p, int n) { return n == LANES ? vf_load(p) : vf_load_some(p, n); }
INLINE void put(float* p, vf a, int n) {
  if (n == LANES) vf_store(p, a);
  else vf_store_some(p, a, n);
}

INLINE int real_tokens(const int* counts, int row, int width) { return counts ? counts[row] : width; }
INLINE const float* token_at(struct mk_tokens x, int row, int token) { return x.at + row * x.row + token * x.token; }

/* Padding answers 0: n floats of tokens [first, stop), from `channel` of a row that is `wide`. */
INLINE void pad(float* y, int first, int stop, ptrdiff_t wide, ptrdiff_t channel, int n) {
  for (int t = first; t < stop; t++) memset(y + t * wide + channel, 0, (size_t)n * 4);
}

INLINE vf vf_silu(vf x) { return vf_mul(x, vf_sigmoid(x)); }

/* Tokens whose small numbers are computed together before their states are. */
enum { TOGETHER = 16 };

/* One number of each of n <= 16 tokens as lanes, zeros behind them. */
INLINE vf of_tokens(struct mk_tokens x, int row, int first, int n, int channel) {
  float t[LANES] = {0};
  for (int i = 0; i < n; i++) t[i] = token_at(x, row, first + i)[channel];
  return vf_load(t);
}
