/* Many rows: codes are unpacked once into a slab that fits the nearest cache, and tiles of rows go over it. */
#pragma once
#include "products/codes.h"

/* Panels and rows whose sums stay in registers. */
#if defined(__AVX512VNNI__)
enum { PANELS = 2, TILE = 4 };
#elif defined(__AVXVNNI__)
enum { PANELS = 1, TILE = 3 };
#else
enum { PANELS = 1, TILE = 4 };
#endif

/* What lies between elements `first` and `first + count` of a strip's rows. */
struct slab {
  _Alignas(64) int32_t codes[PANELS][MK_SLAB / WORD][LANES];
  float scales[PANELS][64][LANES], biases[PANELS][64][LANES]; /* a vector per group */
  int block, per_group, first, count; /* blocks: elements of one, how many there are in a group */
  struct mk_calls* calls;             /* or NULL; so many are made at a time */
  int each;
};

/* R rows from x on times a slab, added to sums. What a row's words are is read once for all panels, and what codes are once for
 * all rows and, where words hold bytes, for both of x's. */
INLINE void tile(const struct slab* s, const char* x, size_t ldx, int k, float* sums, const int R) {
  const int block = s->block, words = block / WORD, first = s->first / block;
  const float* scales = (const float*)(x + (size_t)(k + 31) / 32 * 64) + first;
  const size_t ld = ldx / 4, to_sums = (size_t)(k / block);
  vf y[TILE][PANELS];
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) y[r][p] = vf_load(sums + r * MK_STRIP + p * LANES);
  x += (size_t)first * 2 * block;
  for (int b = 0; b * block < s->count; b++, x += 2 * block, scales++) {
    vi sum[TILE][PANELS], low[TILE][PANELS];
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) sum[r][p] = low[r][p] = vi_set(0);
    for (int t = 0; t < words; t++) {
      vi c[PANELS];
      UNROLL for (int p = 0; p < PANELS; p++) c[p] = vi_load(s->codes[p][b * words + t]);
      UNROLL for (int r = 0; r < R; r++) {
        const char* at = x + r * ldx + 4 * t;
        UNROLL for (int p = 0; p < PANELS; p++) sum[r][p] = vi_dot(sum[r][p], c[p], word(at));
        UNROLL for (int p = 0; p < PANELS && WORD == 4; p++) low[r][p] = vi_dot(low[r][p], c[p], word(at + block));
      }
    }
    const int g = s->per_group == 2 ? b / 2 : b;
    UNROLL for (int p = 0; p < PANELS; p++) {
      const vf scale = vf_load(s->scales[p][g]), bias = vf_load(s->biases[p][g]);
      UNROLL for (int r = 0; r < R; r++) {
        const vi whole = WORD == 4 ? vi_add(vi_left(sum[r][p], 8), low[r][p]) : sum[r][p];
        y[r][p] = vf_fma(vi_float(whole), vf_mul(vf_set(scales[r * ld]), scale), y[r][p]);
        y[r][p] = vf_fma(bias, vf_set(scales[r * ld + to_sums]), y[r][p]);
      }
    }
  }
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) vf_store(sums + r * MK_STRIP + p * LANES, y[r][p]);
}

/* Rows are shared out evenly among as few tiles as can be. */
static void tiles(const struct slab* s, const char* x, size_t ldx, int k, int rows, float* sums) {
  for (int left = (rows + TILE - 1) / TILE, n; left; left--, rows -= n, x += (size_t)n * ldx, sums += n * MK_STRIP) {
    n = (rows + left - 1) / left;
    if (n == 4) tile(s, x, ldx, k, sums, TILE); /* where that is 3, never */
    else if (n == 3) tile(s, x, ldx, k, sums, 3);
    else if (n == 2) tile(s, x, ldx, k, sums, 2);
    else tile(s, x, ldx, k, sums, 1);
  }
}
