/* Few rows: 64 elements of 16 outputs at a time, in 32 bytes of codes, or twice as many, multiplied as they lie, along k. What
 * a column makes of them: `met_of` brings x's 64 elements into the order that codes come in, `four_of` has the sums of four outputs,
 * and `of_blocks` those of all sixteen, in lanes, of a block of 64 or of two of 32.
 */
#pragma once
#include "products/tile.h"

#if defined(__AVX2__)
enum { FEW = 4 };
#include "products/along_avx2.h"
#else
enum { FEW = 3 }; /* four are as fast by a slab */
#include "products/along_sdot.h"
#endif

/* y and the sums `of` n blocks of a panel, of which `left` are there, the first as block b of the slab. scales: of x's `blocks`
 * blocks, and then their sums. */
INLINE vf with_blocks(vf y, const struct slab* s, const vi* of, int b, int left, const float* scales, int blocks, const int n,
                      const int lowered) {
  UNROLL for (int i = 0; i < n; i++) {
    if (i >= left) break;
    const int g = s->per_group == 2 ? (b + i) / 2 : b + i;
    const vi sum = raised(of[i], scales + b + i, (size_t)blocks, lowered);
    y = vf_fma(vi_float(sum), vf_mul(vf_set(scales[b + i]), vf_load(s->scales[0][g])), y);
    y = vf_fma(vf_load(s->biases[0][g]), vf_set(scales[b + i + blocks]), y);
  }
  return y;
}

/* R rows times one panel of a slab, of which only scales and biases are unpacked, added to sums. `block` is the slab's. */
INLINE void few_along(const struct slab* s, const struct panel* p, size_t at, const char* x, size_t ldx, int k, float* sums, const int bits,
                     const int fp4, const int block, const int R) {
  const int blocks = k / block, count = s->count / block, together = 64 / block;
  const char* from[FEW];
  const float* scales[FEW];
  vf y[FEW];
  UNROLL for (int r = 0; r < R; r++) {
    from[r] = x + r * ldx + (size_t)s->first * 2;
    scales[r] = (const float*)(x + r * ldx + (size_t)(k + 31) / 32 * 64) + s->first / block;
    y[r] = vf_load(sums + r * MK_STRIP);
  }
  for (int b = 0; b < count; b += together, at += 8 * bits) {
    const int half = count - b < together;
    struct met met[FEW];
    struct quads quads[FEW];
    if (8 * bits == 64 || !(at & 63)) fetch(p, at, 1);
    UNROLL for (int r = 0; r < R; r++) met[r] = met_of(from[r], bits, block), from[r] += 128;
    UNROLL for (int i = 0; i < 4; i++) four_of(p->rows + 4 * i, at, half, met, quads, i, bits, fp4, block, R);
    UNROLL for (int r = 0; r < R; r++) {
      vi of[2];
      of_blocks(&quads[r], block, of);
      y[r] = with_blocks(y[r], s, of, b, count - b, scales[r], blocks, together, bits == 8);
    }
  }
  UNROLL for (int r = 0; r < R; r++) vf_store(sums + r * MK_STRIP, y[r]);
}
