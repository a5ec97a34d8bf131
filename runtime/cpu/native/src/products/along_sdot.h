/* What `few_along.h` computes by on ARM: sdot, or usmmla, which multiplies codes of two outputs by x's high bytes and its low ones. */
#pragma once
#include "products/tile.h"

#if MK_USDOT
enum { TOGETHER = 2 }; /* outputs whose codes share a vector */

/* Eights of x's high bytes and of its low ones, as they lie. */
struct met {
  int8x16_t eights[8];
};

INLINE struct met met_of(const char* x, const int bits, const int block) {
  struct met to;
  (void)bits, (void)block;
  UNROLL for (int i = 0; i < 8; i++) to.eights[i] = vld1q_s8((const int8_t*)x + 16 * i);
  return to;
}

/* 16 bytes of each output: eights of both. */
INLINE void side_by_side(const uint8x16_t rows[2], uint8x16_t to[2]) {
  const uint64x2_t a = vreinterpretq_u64_u8(rows[0]), b = vreinterpretq_u64_u8(rows[1]);
  to[0] = vreinterpretq_u8_u64(vzip1q_u64(a, b)), to[1] = vreinterpretq_u8_u64(vzip2q_u64(a, b));
}

INLINE int32x4_t sum_with(const uint8x16_t* codes, const struct met* x, const int first, const int count) {
  int32x4_t sum = vdupq_n_s32(0);
  UNROLL for (int i = first; i < first + count; i++) sum = vusmmlaq_s32(sum, codes[i], x->eights[i]);
  return sum;
}

INLINE int32x4_t four_sums(const int32x4_t of[2]) { return of_pairs(of[0], of[1]); }

#else
enum { TOGETHER = 1 };

/* x's high bytes and its low ones, for each vector of codes. */
struct met {
  int8x16_t high[4], low[4];
};

INLINE struct met met_of(const char* x, const int bits, const int block) {
  struct met to;
  (void)block;
  UNROLL for (int i = 0; i < 4; i++) { /* the fields of a byte take turns, eight elements each */
    const int first = bits == 8 ? 2 * i : i / 2 * 4 + i % 2, second = first + (bits == 8 ? 1 : 2);
    const int64x2_t a = vld1q_s64((const int64_t*)x + 2 * first), b = vld1q_s64((const int64_t*)x + 2 * second);
    to.high[i] = vreinterpretq_s8_s64(vzip1q_s64(a, b)), to.low[i] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
  }
  return to;
}

INLINE void side_by_side(const uint8x16_t rows[1], uint8x16_t to[1]) { to[0] = rows[0]; }

INLINE int32x4_t sum_with(const uint8x16_t* codes, const struct met* x, const int first, const int count) {
  int32x4_t sum = vdupq_n_s32(0);
  UNROLL for (int i = first; i < first + count; i++) sum = vdotq_s32(sum, vreinterpretq_s8_u8(codes[i]), x->high[i]);
  sum = vshlq_n_s32(sum, 8);
  UNROLL for (int i = first; i < first + count; i++) sum = vdotq_s32(sum, vreinterpretq_s8_u8(codes[i]), x->low[i]);
  return sum;
}

INLINE int32x4_t four_sums(const int32x4_t of[4]) { return vpaddq_s32(vpaddq_s32(of[0], of[1]), vpaddq_s32(of[2], of[3])); }
#endif

enum { VECTORS = 4 * TOGETHER }; /* of 64 codes of so many outputs */

INLINE uint8x16_t field_of(uint8x16_t bytes, const int bits, const int fp4, const int field) {
  if (bits == 8) return SIGNED ? veorq_u8(bytes, vdupq_n_u8(128)) : bytes;
  const uint8x16_t codes = field ? vshrq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(15));
  return fp4 ? vqtbl1q_u8(vld1q_u8(FP4), codes) : codes;
}

/* 64 codes of each of TOGETHER outputs, as `met` has x. `half`: the second 32 are not there. */
INLINE void codes_of(const char* const* rows, size_t at, int half, const int bits, const int fp4, uint8x16_t to[VECTORS]) {
  const int fields = 8 / bits;
  UNROLL for (int v = 0; v < bits / 2; v++) {
    uint8x16_t lying[TOGETHER], bytes[TOGETHER];
    UNROLL for (int i = 0; i < TOGETHER; i++)
      lying[i] = half && v >= bits / 4 ? vdupq_n_u8(0) : vld1q_u8((const uint8_t*)rows[i] + at + 16 * v);
    side_by_side(lying, bytes);
    UNROLL for (int i = 0; i < TOGETHER * fields; i++) to[v * TOGETHER * fields + i] = field_of(bytes[i / fields], bits, fp4, i % fields);
  }
}

/* Sums of sixteen outputs, of one block or of two. */
struct quads {
  vi of[2];
};

INLINE void four_of(const char* const rows[4], size_t at, int half, const struct met* met, struct quads* to, const int quad, const int bits,
                    const int fp4, const int block, const int R) {
  const int each = VECTORS * block / 64;
  int32x4_t sums[FEW][2][4 / TOGETHER];
  UNROLL for (int j = 0; j < 4 / TOGETHER; j++) {
    uint8x16_t codes[VECTORS];
    codes_of(rows + j * TOGETHER, at, half, bits, fp4, codes);
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int b = 0; b < 64 / block; b++) sums[r][b][j] = sum_with(codes, &met[r], b * each, each);
  }
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int b = 0; b < 64 / block; b++) to[r].of[b].v[quad] = four_sums(sums[r][b]);
}

INLINE void of_blocks(const struct quads* quads, const int block, vi of[2]) {
  UNROLL for (int b = 0; b < 64 / block; b++) of[b] = quads->of[b];
}
