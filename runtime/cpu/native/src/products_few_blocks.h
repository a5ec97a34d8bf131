/* One row or two with blocks of 256 by vpdpbusd: as products_few_vnni.h has it, codes meet x as they come from memory.
 *
 * A register holds 64 codes of one output, a piece of its block: two groups of 32, or four of 16. The groups of a piece are
 * not neighbours, and sums are added in the order of groups, so those of a whole block are kept until all are there.
 */
#pragma once
#include "products_blocks.h"
#include "products_few_vnni.h"

/* 32 bytes, twice, each half turned left by so many bits of its words. */
INLINE vi turned(const char* from, const int lower, const int upper) {
  const __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)from));
  return _mm512_rolv_epi32(both, _mm512_inserti64x4(_mm512_set1_epi32(lower & 31), _mm256_set1_epi32(upper & 31), 1));
}

/* The lowest bits of every byte of one, and some others of the other's. */
INLINE vi joined(vi low, const int mask, vi high, const int other) {
  return _mm512_ternarylogic_epi32(low, BYTES(mask), vi_and(high, BYTES(other)), 0xea);
}

INLINE vi piece_of(const char* block, const int kind, const int piece) {
  const int half = piece / 2, upper = piece % 2;
  switch (kind) {
    case MK_Q2_K: return bits_at(vi_load(block + 16), 2 * piece, 2, 0);
    case MK_Q3_K: return joined(vi_right(vi_load(block + 32), 2 * piece), 3, turned(block, 2 - piece, -2 - piece), 4);
    case MK_Q4_K: return bits_at(vi_load(block + 16 + 64 * half), 4 * upper, 4, 0);
    case MK_Q5_K: {
      const int bit = 4 * half + upper;
      return joined(vi_right(vi_load(block + 48 + 64 * half), 4 * upper), 15, turned(block + 16, 4 - bit, 2 - bit), 16);
    }
    default: {
      const vi high = turned(block + 128 + 32 * half, 4 - 4 * upper, 2 - 4 * upper);
      return joined(vi_right(vi_load(block + 64 * half), 4 * upper), 15, high, 48);
    }
  }
}

/* The i-th group of a piece. */
INLINE int group_of(const int kind, const int piece, const int i) {
  if (kind == MK_Q6_K) return 4 * piece + i;
  if (kind == MK_Q4_K || kind == MK_Q5_K) return 4 * (piece / 2) + 2 * i + piece % 2;
  return i / 2 * 8 + 2 * piece + i % 2;
}

/* x of a piece; x: of the block's first element. */
INLINE struct met piece_met(const char* x, const int kind, const int piece, const int group) {
  const vi a = vi_load(x + 2 * group * group_of(kind, piece, 0)), b = vi_load(x + 2 * group * group_of(kind, piece, group == 32 ? 1 : 2));
  if (group == 32) return (struct met){{_mm512_shuffle_i64x2(a, b, 0x44)}, {_mm512_shuffle_i64x2(a, b, 0xee)}};
  return (struct met){{_mm512_shuffle_i64x2(a, b, 0x88)}, {_mm512_shuffle_i64x2(a, b, 0xdd)}};
}

/* A quarter of what lies in the next panel where this one has blocks of so many bytes: as `fetch`. */
INLINE void fetch_quarter(const struct panel* p, size_t at, const int quarter, const size_t bytes) {
  const int lines = (int)(16 * bytes / 64 + 3) / 4;
  const char* line = p->rows[0] + 16 * at + p->bytes + 64 * lines * quarter;
  UNROLL for (int i = 0; i < lines; i++) __builtin_prefetch(line + 64 * i, 0, 2);
}

/* R rows times one panel of a slab, of which only scales and biases are unpacked, added to sums. */
INLINE void few_blocks(const struct slab* s, const struct panel* p, size_t at, const char* x, size_t ldx, int k, float* sums, const int kind,
                       const int R) {
  const int group = kind == MK_Q4_K || kind == MK_Q5_K ? 32 : 16, groups = 256 / group, together = 64 / group;
  const size_t bytes = (size_t)mk_blocks_of(kind).bytes;
  const char* from[2];
  const float* scales[2];
  vf y[2];
  UNROLL for (int r = 0; r < R; r++) {
    from[r] = x + r * ldx + (size_t)s->first * 2;
    scales[r] = (const float*)(x + r * ldx + (size_t)(k + 31) / 32 * 64) + s->first / group;
    y[r] = vf_load(sums + r * MK_STRIP);
  }
  for (int e = 0; e < s->count; e += 256, at += bytes) {
    vi of[2][16];
    UNROLL for (int piece = 0; piece < 4; piece++) {
      struct met met[2];
      vi quarters[2][4];
      fetch_quarter(p, at, piece, bytes);
      UNROLL for (int r = 0; r < R; r++) met[r] = piece_met(from[r], kind, piece, group);
      UNROLL for (int i = 0; i < 4; i++) {
        vi four[2][4];
        UNROLL for (int j = 0; j < 4; j++) {
          const vi codes = piece_of(p->rows[4 * i + j] + at, kind, piece);
          UNROLL for (int r = 0; r < R; r++) four[r][j] = sums_with(codes, codes, &met[r], 8);
        }
        UNROLL for (int r = 0; r < R; r++) quarters[r][i] = quarters_of(four[r]);
      }
      UNROLL for (int r = 0; r < R; r++) {
        vi found[4];
        blocks_of(quarters[r], together, found);
        UNROLL for (int i = 0; i < together; i++) of[r][group_of(kind, piece, i)] = found[i];
      }
    }
    UNROLL for (int r = 0; r < R; r++)
      y[r] = with_blocks(y[r], s, of[r], e / group, groups, scales[r], k / group, groups), from[r] += 512;
  }
  UNROLL for (int r = 0; r < R; r++) vf_store(sums + r * MK_STRIP, y[r]);
}
