/* Eight rows with codes of 8 bits by vpdpbusd: words of 16 outputs are turned over, as `few` has them, and go from registers into
 * the dot products. Of so many bytes what a slab is made of would be waited for.
 */
#pragma once
#include "products_tile.h"

enum { EIGHT = 8 };

/* Eight rows times one panel of a slab, of which only scales and biases are unpacked, added to sums. `block` is the slab's. */
INLINE void eight_rows(const struct slab* s, const struct panel* p, size_t at, const char* x, size_t ldx, int k, float* sums, const int block) {
  const int blocks = k / block, words_of_block = block / WORD;
  const float* factors = (const float*)(x + (size_t)(k + 31) / 32 * 64) + s->first / block; /* x's scales, and then its sums */
  const size_t ld = ldx / sizeof(float);
  vf y[EIGHT];
  x += (size_t)s->first * 2;
  UNROLL for (int r = 0; r < EIGHT; r++) y[r] = vf_load(sums + r * MK_STRIP);
  for (int left = s->count, b = 0; left > 0; left -= 64, at += 64) {
    vi words[16];
    vi_transpose(p->rows, at, left < 64 ? left : 64, p->end, words);
    UNROLL for (int i = 0; i < 64 / block; i++) {
      if (i * block >= left) break;
      vi sum[EIGHT], low[EIGHT]; /* of x's high bytes and of its low ones */
      UNROLL for (int r = 0; r < EIGHT; r++) sum[r] = low[r] = vi_set(0);
      UNROLL for (int t = 0; t < words_of_block; t++) {
        fetch_one(p, at, 1, i * words_of_block + t);
        UNROLL for (int r = 0; r < EIGHT; r++) {
          sum[r] = vi_dot(sum[r], words[i * words_of_block + t], word(x + r * ldx + 4 * t));
          low[r] = vi_dot(low[r], words[i * words_of_block + t], word(x + r * ldx + block + 4 * t));
        }
      }
      const int g = s->per_group == 2 ? b / 2 : b;
      const vf scale = vf_load(s->scales[0][g]), bias = vf_load(s->biases[0][g]);
      UNROLL for (int r = 0; r < EIGHT; r++) {
        y[r] = vf_fma(vi_float(vi_add(vi_left(sum[r], 8), low[r])), vf_mul(vf_set(factors[r * ld]), scale), y[r]);
        y[r] = vf_fma(bias, vf_set(factors[r * ld + (size_t)blocks]), y[r]);
      }
      x += 2 * block, factors++, b++;
    }
  }
  UNROLL for (int r = 0; r < EIGHT; r++) vf_store(sums + r * MK_STRIP, y[r]);
}
