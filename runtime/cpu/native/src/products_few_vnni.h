/* Up to three rows by vpdpbusd: codes meet x as they come from memory, and only sums are turned over.
 *
 * A register holds 64 bytes of one output's codes: some blocks, one behind the other. The sums of 16 outputs are
 * brought into one vector per block, outputs in lanes. They are exact, so these are the bits of any other way.
 */
#pragma once
#include "products_tile.h"

enum { FEW = 3 };

/* x's bytes for the codes of one register: high and low ones, [0] for a byte's lower field, [1] for its upper one. */
struct met {
  vi high[2], low[2];
};

/* x begins with the first of them; `bytes` of codes are there. Blocks of x are their high bytes, then their low ones, and
 * words take turns: lower fields, upper fields (`order_of`). */
INLINE struct met met_of(const char* x, int bytes, const int bits, const int block) {
  const int in_block = block * bits / 8, size = 2 * block; /* bytes of its codes and of x */
  vi from[4];
  UNROLL for (int i = 0; i < 1024 / bits / 64; i++) from[i] = i * 64 / size * in_block < bytes ? vi_load(x + 64 * i) : vi_set(0);
  if (block == 32) /* blocks by two, so that they are one of 64 */
    UNROLL for (int i = 0; i < 1024 / bits / 64; i += 2) {
      const vi a = from[i], b = from[i + 1];
      from[i] = _mm512_shuffle_i64x2(a, b, 0x44), from[i + 1] = _mm512_shuffle_i64x2(a, b, 0xee);
    }
  if (bits == 8) return (struct met){{from[0]}, {from[1]}};
  const vi lower = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0), upper = vi_add(lower, vi_set(1));
  return (struct met){
      {_mm512_permutex2var_epi32(from[0], lower, from[2]), _mm512_permutex2var_epi32(from[0], upper, from[2])},
      {_mm512_permutex2var_epi32(from[1], lower, from[3]), _mm512_permutex2var_epi32(from[1], upper, from[3])},
  };
}

INLINE vi dot(vi sum, vi codes, vi x) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "vm"(x)); /* see vi_dot */
  return sum;
}

INLINE vi sums_with(vi lower, vi upper, const struct met* x, const int bits) {
  vi sum = dot(vi_set(0), lower, x->high[0]);
  if (bits == 4) sum = dot(sum, upper, x->high[1]);
  sum = dot(vi_left(sum, 8), lower, x->low[0]);
  return bits == 4 ? dot(sum, upper, x->low[1]) : sum;
}

/* Four outputs' sums, added up within each lane of 128 bits: there the four stand in order. */
INLINE vi quarters_of(const vi a[4]) {
  const vi ab = vi_add(_mm512_unpacklo_epi32(a[0], a[1]), _mm512_unpackhi_epi32(a[0], a[1]));
  const vi cd = vi_add(_mm512_unpacklo_epi32(a[2], a[3]), _mm512_unpackhi_epi32(a[2], a[3]));
  return vi_add(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* Quarters of four times four outputs -> sums[b], all 16 of the b-th of the register's blocks. */
INLINE void blocks_of(const vi quarters[4], const int blocks, vi sums[4]) {
  const vi a = _mm512_shuffle_i32x4(quarters[0], quarters[1], 0x88), b = _mm512_shuffle_i32x4(quarters[0], quarters[1], 0xdd);
  const vi c = _mm512_shuffle_i32x4(quarters[2], quarters[3], 0x88), d = _mm512_shuffle_i32x4(quarters[2], quarters[3], 0xdd);
  if (blocks == 4) {
    sums[0] = _mm512_shuffle_i32x4(a, c, 0x88), sums[2] = _mm512_shuffle_i32x4(a, c, 0xdd);
    sums[1] = _mm512_shuffle_i32x4(b, d, 0x88), sums[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
    return;
  }
  const vi ab = vi_add(a, b), cd = vi_add(c, d);
  sums[0] = _mm512_shuffle_i32x4(ab, cd, 0x88), sums[1] = _mm512_shuffle_i32x4(ab, cd, 0xdd);
  if (blocks == 1) sums[0] = vi_add(sums[0], sums[1]);
}

/* R rows times one panel of a slab, of which only scales and biases are unpacked, added to sums. `block` is the slab's. */
INLINE void few_vnni(const struct slab* s, const struct panel* p, size_t at, const char* x, size_t ldx, int k, float* sums,
                     const int bits, const int fp4, const int block, const int R) {
  const int blocks = k / block, count = s->count / block, together = 512 / (block * bits);
  const vi field = vi_set(bits == 4 ? 0x0f0f0f0f : -1);
  const char* from[FEW];
  const float* scales[FEW];
  vf y[FEW];
  UNROLL for (int r = 0; r < R; r++) {
    from[r] = x + r * ldx + (size_t)s->first * 2;
    scales[r] = (const float*)(x + r * ldx + (size_t)(k + 31) / 32 * 64) + s->first / block;
    y[r] = vf_load(sums + r * MK_STRIP);
  }
  for (int b = 0; b < count; b += together, at += 64) {
    const int bytes = count - b < together ? (count - b) * block * bits / 8 : 64;
    const __mmask64 some = bytes < 64 ? ((__mmask64)1 << bytes) - 1 : ~(__mmask64)0;
    struct met met[FEW];
    vi quarters[FEW][4];
    UNROLL for (int r = 0; r < R; r++) met[r] = met_of(from[r], bytes, bits, block), from[r] += 1024 / bits;
    UNROLL for (int i = 0; i < 4; i++) {
      vi four[FEW][4];
      UNROLL for (int j = 0; j < 4; j++) {
        fetch_one(p, at, 1, 4 * i + j);
        const vi codes = _mm512_maskz_loadu_epi8(some, p->rows[4 * i + j] + at);
        vi lower = vi_and(codes, field), upper = vi_and(vi_right(codes, 4), field);
        if (fp4) lower = vi_lookup(lower, FP4), upper = vi_lookup(upper, FP4);
        UNROLL for (int r = 0; r < R; r++) four[r][j] = sums_with(lower, upper, &met[r], bits);
      }
      UNROLL for (int r = 0; r < R; r++) quarters[r][i] = quarters_of(four[r]);
    }
    UNROLL for (int r = 0; r < R; r++) {
      vi of[4];
      blocks_of(quarters[r], together, of);
      y[r] = with_blocks(y[r], s, of, b, count - b, scales[r], blocks, together);
    }
  }
  UNROLL for (int r = 0; r < R; r++) vf_store(sums + r * MK_STRIP, y[r]);
}
