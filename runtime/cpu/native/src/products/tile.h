/* Many rows: codes are unpacked once into a slab that fits the nearest cache, and tiles of rows go over it. */
#pragma once
#include "products/codes.h"

/* Panels and rows whose sums stay in registers. */
#if defined(__AVX512VNNI__)
enum { PANELS = 2, TILE = 4 };
#elif defined(__AVXVNNI__) || MK_SDOT
enum { PANELS = 1, TILE = 3 };
#else
enum { PANELS = 1, TILE = 4 };
#endif

/* What lies between elements `first` and `first + count` of a strip's rows. */
struct slab {
  _Alignas(64) int32_t codes[PANELS][MK_SLAB / WORD][LANES];
  float scales[PANELS][64][LANES], biases[PANELS][64][LANES]; /* a vector per group */
  int block, per_group, first, count; /* blocks: elements of one, how many there are in a group */
  int lowered;                        /* are codes? (`raised`) */
  struct mk_calls* calls;             /* or NULL; so many are made at a time */
  int each;
};

#if MK_USDOT
/* Codes for usmmla: two words of an output side by side, of the first eight outputs and then of the others. One such instruction
 * multiplies those of two outputs by x's high bytes and by its low ones. */
static void pair_words(struct slab* s) {
  for (int t = 0; t < s->count / WORD; t += 2) {
    const vi a = vi_load(s->codes[0][t]), b = vi_load(s->codes[0][t + 1]);
    UNROLL for (int i = 0; i < 4; i++) {
      vst1q_s32(s->codes[0][t] + 8 * i, vzip1q_s32(a.v[i], b.v[i]));
      vst1q_s32(s->codes[0][t] + 8 * i + 4, vzip2q_s32(a.v[i], b.v[i]));
    }
  }
}
/* Sums of eight outputs are one and of the other eight the other: of each two, by high bytes and by low ones. */
INLINE vi first_sum(vi sum, vi codes, struct words_of_x x, const int t) { return t % 2 ? sum : vi_matmul(sum, codes, x.bytes); }
INLINE vi second_sum(vi sum, vi codes, struct words_of_x x, const int t) { return t % 2 ? vi_matmul(sum, codes, x.bytes) : sum; }
INLINE vi whole_sum(vi first, vi second) {
  EVERY(vi, of_pairs((i < 2 ? first : second).v[2 * i % 4], (i < 2 ? first : second).v[2 * i % 4 + 1]));
}
#else
static void pair_words(struct slab* s) { (void)s; }
INLINE vi first_sum(vi sum, vi codes, struct words_of_x x, const int t) { return dot_high(sum, codes, x, t); }
INLINE vi second_sum(vi sum, vi codes, struct words_of_x x, const int t) { return WORD == 4 ? dot_low(sum, codes, x, t) : sum; }
INLINE vi whole_sum(vi high, vi low) { return both(high, low); }
#endif

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
    for (int t = 0; t < words; t += STEP) {
      UNROLL for (int i = 0; i < STEP; i++) {
        vi c[PANELS];
        UNROLL for (int p = 0; p < PANELS; p++) c[p] = vi_load(s->codes[p][b * words + t + i]);
        UNROLL for (int r = 0; r < R; r++) {
          const struct words_of_x at = x_at(x + r * ldx, t, block);
          UNROLL for (int p = 0; p < PANELS; p++) sum[r][p] = first_sum(sum[r][p], c[p], at, i);
          UNROLL for (int p = 0; p < PANELS; p++) low[r][p] = second_sum(low[r][p], c[p], at, i);
        }
      }
    }
    const int g = s->per_group == 2 ? b / 2 : b;
    UNROLL for (int p = 0; p < PANELS; p++) {
      const vf scale = vf_load(s->scales[p][g]), bias = vf_load(s->biases[p][g]);
      UNROLL for (int r = 0; r < R; r++) {
        const vi whole = raised(whole_sum(sum[r][p], low[r][p]), scales + r * ld, to_sums, s->lowered);
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
