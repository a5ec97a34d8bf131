/* Eight rows by vpdpbusd: words of 16 outputs are turned over, as `few` has them, which for so many rows costs less than to
 * turn over every row's sums, and go from registers into the dot products, which a slab would not.
 */
#pragma once
#include "products_tile.h"

enum { EIGHT = 8 };

/* Eight rows times one panel of a slab, of which only scales and biases are unpacked, added to sums. `block` is the slab's. */
INLINE void eight_rows(const struct slab* s, const struct panel* p, size_t at, const char* x, size_t ldx, int k, float* sums,
                       const int bits, const int fp4, const int block) {
  const int step = step_of(bits) * 4 * bits, blocks = k / block; /* bytes that are turned over at once: blocks of 64 */
  const int apart = step * 8 / bits / WORD / 16;                 /* words from one line that is asked for to the next */
  const float* factors = (const float*)(x + (size_t)(k + 31) / 32 * 64) + s->first / block; /* x's scales, and then its sums */
  const size_t ld = ldx / sizeof(float);
  vf y[EIGHT];
  x += (size_t)s->first * 2;
  UNROLL for (int r = 0; r < EIGHT; r++) y[r] = vf_load(sums + r * MK_STRIP);
  for (int left = s->count * bits / 8, b = 0; left > 0; left -= step, at += (size_t)step) {
    vi words[16];
    vi_transpose(p->rows, at, left < step ? left : step, p->end, words);
    UNROLL for (int i = 0; i < step * 8 / bits / block; i++) {
      if (i * block * bits / 8 >= left) break;
      vi sum[EIGHT], low[EIGHT]; /* of x's high bytes and of its low ones */
      UNROLL for (int r = 0; r < EIGHT; r++) sum[r] = low[r] = vi_set(0);
      UNROLL for (int t = 0; t < block / WORD; t++) {
        const int done = i * block / WORD + t;
        if (done % apart == 0) fetch_one(p, at, 1, done / apart);
        const vi codes = unpacked(words + (i * block / 32 + t / 8) * bits, bits, fp4, t % 8);
        UNROLL for (int r = 0; r < EIGHT; r++) {
          sum[r] = vi_dot(sum[r], codes, word(x + r * ldx + 4 * t));
          low[r] = vi_dot(low[r], codes, word(x + r * ldx + block + 4 * t));
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
