/* One row or two with blocks of 256, in every column: words of 16 outputs are turned over between the dot products, which hide most of
 * what that costs. In one piece of code for more rows a block would be as long as the cache of instructions.
 */
#pragma once
#include "products/block_words.h"

#define FOR_ROWS(what, kind) what(kind, 1) what(kind, 2)

/* R rows times one panel of whole blocks, added to sums. */
INLINE void few_blocks(const struct panel* p, const char* x, size_t ldx, int k, float* sums, const int kind, const int R) {
  const int group = kind == MK_Q4_K || kind == MK_Q5_K || kind == MK_IQ4_XS ? 32 : 16, groups = k / group;
  const float* factors = (const float*)(x + (size_t)(k + 31) / 32 * 64); /* x's scales, and then its sums */
  const size_t ld = ldx / sizeof(float);
  struct at_blocks b = {p, 0};
  vf y[FEW_WITH_BLOCKS];
  UNROLL for (int r = 0; r < R; r++) y[r] = vf_load(sums + r * MK_STRIP);
  for (int e = 0; e < k; e += 256, b.at += (size_t)mk_blocks_of(kind).bytes) {
    float scales[16][LANES], biases[16][LANES];
    struct half words;
    unpack_block_scales(kind, &b, scales, biases);
    UNROLL for (int half = 0; half < 2; half++) {
      half_of_block(&b, kind, half, &words);
      UNROLL for (int g = 0; g < 128 / group; g++, x += 2 * group, factors++) {
        vi sum[FEW_WITH_BLOCKS], low[FEW_WITH_BLOCKS]; /* low: with x's low bytes, where words are bytes */
        UNROLL for (int r = 0; r < R; r++) sum[r] = low[r] = vi_set(0);
        UNROLL for (int i = 0; i < group; i += 4) {
          vi codes[4 / WORD];
          fetch_some(&b, kind, half, (group * g + i) / 4, 32, 1);
          words_for_dot(codes_at(&words, kind, half, group * g + i), table_of(kind), codes);
          UNROLL for (int t = 0; t < 4 / WORD; t++) UNROLL for (int r = 0; r < R; r++) {
            const int nth = i / WORD + t;
            const struct words_of_x at = x_at(x + r * ldx, nth, group);
            sum[r] = dot_high(sum[r], codes[t], at, nth);
            if (WORD == 4) low[r] = dot_low(low[r], codes[t], at, nth);
          }
        }
        const int of = 128 / group * half + g;
        UNROLL for (int r = 0; r < R; r++) {
          const vi whole = raised(both(sum[r], low[r]), factors + r * ld, (size_t)groups, kind == MK_IQ4_XS);
          y[r] = vf_fma(vi_float(whole), vf_mul(vf_set(factors[r * ld]), vf_load(scales[of])), y[r]);
          y[r] = vf_fma(vf_load(biases[of]), vf_set(factors[r * ld + (size_t)groups]), y[r]);
        }
      }
    }
  }
  UNROLL for (int r = 0; r < R; r++) vf_store(sums + r * MK_STRIP, y[r]);
}
