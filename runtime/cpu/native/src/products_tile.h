/* Many rows: codes are unpacked once into a slab that fits the nearest cache, and tiles of rows go over it. */
#pragma once
#include "products_codes.h"

#if defined(__AVX512VNNI__)
enum { PANELS = 2, TILE = 8 }; /* panels and rows whose sums stay in registers */
#else
enum { PANELS = 1, TILE = 4 };
#endif

/* What lies between elements `first` and `first + count` of a strip's rows. */
struct slab {
  _Alignas(64) int32_t codes[PANELS][MK_SLAB / WORD][LANES];
  float scales[PANELS][64][LANES], biases[PANELS][64][LANES]; /* a vector per group */
  int block, per_group, first, count; /* blocks: elements of one, how many there are in a group */
};

/* y and the sums `of` n blocks of a panel, of which `left` are there, the first as block b of the slab. scales: of x's `blocks`
 * blocks, and then their sums. */
INLINE vf with_blocks(vf y, const struct slab* s, const vi* of, int b, int left, const float* scales, int blocks, const int n) {
  UNROLL for (int i = 0; i < n; i++) {
    if (i >= left) break;
    const int g = s->per_group == 2 ? (b + i) / 2 : b + i;
    y = vf_fma(vi_float(of[i]), vf_mul(vf_set(scales[b + i]), vf_load(s->scales[0][g])), y);
    y = vf_fma(vf_load(s->biases[0][g]), vf_set(scales[b + i + blocks]), y);
  }
  return y;
}

/* R rows from x on times a slab, added to sums. */
INLINE void tile(const struct slab* s, const char* x, size_t ldx, int k, float* sums, const int R) {
  const int block = s->block, words = block / WORD, first = s->first / block;
  const float* scales = (const float*)(x + (size_t)(k + 31) / 32 * 64) + first;
  const size_t ld = ldx / 4, to_sums = (size_t)(k / block);
  x += (size_t)first * 2 * block;
  for (int b = 0; b * block < s->count; b++, x += 2 * block, scales++) {
    vi sum[TILE][PANELS];
    const int32_t(*codes[PANELS])[LANES];
    UNROLL for (int p = 0; p < PANELS; p++) codes[p] = s->codes[p] + b * words;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) sum[r][p] = vi_set(0);
#if defined(__AVX512VNNI__)
    if (R <= 4) { /* both bytes in one pass, which gives more sums to work on at a time */
      vi low[4][PANELS];
      UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) low[r & 3][p] = vi_set(0);
      for (int t = 0; t < words; t++) UNROLL for (int p = 0; p < PANELS; p++) {
        const vi c = vi_load(codes[p][t]);
        UNROLL for (int r = 0; r < R; r++) {
          sum[r][p] = vi_dot(sum[r][p], c, word(x + r * ldx + 4 * t));
          low[r & 3][p] = vi_dot(low[r & 3][p], c, word(x + r * ldx + block + 4 * t));
        }
      }
      UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) sum[r][p] = vi_add(vi_left(sum[r][p], 8), low[r & 3][p]);
    } else {
      for (int half = 0; half < 2; half++) {
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) sum[r][p] = vi_left(sum[r][p], 8);
        for (int t = 0; t < words; t++) {
          vi c[PANELS];
          UNROLL for (int p = 0; p < PANELS; p++) c[p] = vi_load(codes[p][t]);
          UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++)
            sum[r][p] = vi_dot(sum[r][p], c[p], word(x + r * ldx + half * block + 4 * t));
        }
      }
    }
#else
    for (int t = 0; t < words; t++) {
      vi c[PANELS];
      UNROLL for (int p = 0; p < PANELS; p++) c[p] = vi_load(codes[p][t]);
      UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) sum[r][p] = vi_dot(sum[r][p], c[p], word(x + r * ldx + 4 * t));
    }
#endif
    const int g = s->per_group == 2 ? b / 2 : b;
    UNROLL for (int p = 0; p < PANELS; p++) {
      const vf scale = vf_load(s->scales[p][g]), bias = vf_load(s->biases[p][g]);
      UNROLL for (int r = 0; r < R; r++) {
        float* to = sums + r * MK_STRIP + p * LANES;
        vf a = vf_fma(vi_float(sum[r][p]), vf_mul(vf_set(scales[r * ld]), scale), vf_load(to));
        vf_store(to, vf_fma(bias, vf_set(scales[r * ld + to_sums]), a));
      }
    }
  }
}

static void tiles(const struct slab* s, const char* x, size_t ldx, int k, int rows, float* sums) {
  for (int r = 0, n; r < rows; r += n, x += (size_t)n * ldx, sums += n * MK_STRIP) {
    n = rows - r;
    if (TILE == 8 && n >= 8) tile(s, x, ldx, k, sums, TILE), n = 8;
    else if (n >= 4) tile(s, x, ldx, k, sums, 4), n = 4;
    else if (n >= 2) tile(s, x, ldx, k, sums, 2), n = 2;
    else tile(s, x, ldx, k, sums, 1);
  }
}
