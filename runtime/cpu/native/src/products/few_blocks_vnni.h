/* One row to four with blocks of 256, as `products/few_vnni.h`: the codes of half a block are turned over while those of the half
 * before are multiplied; in memory, since more of them are needed at a time than there are registers. From five rows on, which would
 * turn all over twice, a slab is faster.
 */
#pragma once
#include "products/block_words.h"
#include "products/few_turned.h"

#define FOR_ROWS(what, kind) what(kind, 1) what(kind, 2) what(kind, 3) what(kind, 4)

/* 32 bytes of codes, turned over (`turn_quarter`). */
typedef vi turned[2][4];

/* The codes of half a block as they lie: the lower bits, and the upper ones where these lie apart. */
struct half_turned {
  turned low[2], high;
};

/* Where the codes of a half lie in a block: bytes of lower bits, 32 or 64, and where the upper ones begin; -1: there are none, or
 * those of the first half are read for both. */
struct half_codes {
  int low, low_bytes, high;
};

INLINE struct half_codes codes_of_half(const int kind, const int half) {
  switch (kind) {
    case MK_Q2_K: return (struct half_codes){16 + 32 * half, 32, -1};
    case MK_Q3_K: return (struct half_codes){32 + 32 * half, 32, half ? -1 : 0};
    case MK_Q4_K: return (struct half_codes){16 + 64 * half, 64, -1};
    case MK_Q5_K: return (struct half_codes){48 + 64 * half, 64, half ? -1 : 16};
    case MK_Q6_K: return (struct half_codes){64 * half, 64, 128 + 32 * half};
    default: return (struct half_codes){8 + 64 * half, 64, -1}; /* MK_IQ4_XS */
  }
}

/* One of the sixteen parts of turning over a half's codes, of blocks that lie as `blocks` says. before: the half before. */
INLINE void turn_part(struct lying blocks, const int kind, const int half, const int part, const struct half_turned* before,
                      struct half_turned* to) {
  const struct half_codes at = codes_of_half(kind, half);
  const int piece = part / 4, quarter = part % 4; /* of the lower bits' pieces, and then the upper ones */
  if (piece < at.low_bytes / 32) turn_quarter((struct lying){blocks.first + at.low + 32 * piece, blocks.apart}, quarter, to->low[piece]);
  if (piece != 2) return;
  if (at.high >= 0) turn_quarter((struct lying){blocks.first + at.high, blocks.apart}, quarter, to->high);
  else if (kind == MK_Q3_K || kind == MK_Q5_K) /* a bit of each group's, the second half's behind the first's */
    UNROLL for (int h = 0; h < 2; h++) to->high[h][quarter] = vi_right(before->high[h][quarter], 4);
}

/* The codes of a half's elements 32 j + 8 q to + 7, of the outputs of words[h]. */
INLINE vi codes_of(const struct half_turned* from, const int kind, const int j, const int q, const int h) {
  const vi high = from->high[h][q];
  switch (kind) {
    case MK_Q2_K: return bits_at(from->low[0][h][q], 2 * j, 2, 0);
    case MK_Q3_K: return vi_or(bits_at(from->low[0][h][q], 2 * j, 2, 0), bits_at(high, j, 1, 2));
    case MK_Q4_K: return bits_at(from->low[j / 2][h][q], 4 * (j % 2), 4, 0);
    case MK_Q5_K: return vi_or(bits_at(from->low[j / 2][h][q], 4 * (j % 2), 4, 0), bits_at(high, j, 1, 4));
    case MK_Q6_K: return vi_or(bits_at(from->low[j % 2][h][q], 4 * (j / 2), 4, 0), bits_at(high, 2 * j, 2, 4));
    default: return vi_lookup(bits_at(from->low[j / 2][h][j % 2 * 2 + q % 2], 4 * (q / 2), 4, 0), IQ4);
  }
}

/* A block of each output from `at` on; in `copies` where fewer than 16 outputs are left. */
INLINE struct lying blocks_at(const struct panel* p, size_t at, const int bytes, char (*copies)[256]) {
  const size_t apart = p->bytes / 16;
  if (p->rows[15] - p->rows[0] == (ptrdiff_t)(15 * apart)) return (struct lying){p->rows[0] + at, apart};
  for (int r = 0; r < 16; r++) memcpy(copies[r], p->rows[r] + at, (size_t)bytes);
  return (struct lying){copies[0], sizeof copies[0]};
}

/* R rows, PASS at most, times one panel of whole blocks, added to sums. The lines of the panel behind this one come into the cache. */
INLINE void few_blocks(const struct panel* p, const char* x, size_t ldx, int k, float* sums, const int kind, const int R) {
  const int group = kind == MK_Q4_K || kind == MK_Q5_K || kind == MK_IQ4_XS ? 32 : 16, bytes = mk_blocks_of(kind).bytes;
  const size_t groups = (size_t)(k / group), ld = ldx / sizeof(float);
  const float* factors = (const float*)(x + (size_t)(k + 31) / 32 * 64); /* x's scales, and then its sums */
  struct at_blocks b = {p, 0};
  char copies[16][256];
  struct lying blocks = blocks_at(p, 0, bytes, copies);
  struct half_turned halves[2];
  float scales[16][LANES], biases[16][LANES];
  vi high[PASS][2], low[PASS][2]; /* sums by x's high bytes and its low ones */
  vf y[PASS];
  UNROLL for (int r = 0; r < R; r++) y[r] = vf_load(sums + r * MK_STRIP);
  UNROLL for (int part = 0; part < 16; part++) turn_part(blocks, kind, 0, part, &halves[1], &halves[0]);
  for (int e = 0; e < k; e += 256, b.at += (size_t)bytes) {
    unpack_block_scales(kind, &b, scales, biases);
    UNROLL for (int half = 0; half < 2; half++) {
      if (half && e + 256 < k) blocks = blocks_at(p, b.at + (size_t)bytes, bytes, copies); /* else once more what is there, for nothing */
      UNROLL for (int step = 0; step < 16; step++) {
        const int j = step / 4, q = step % 4, g = 8 * step / group, of = 128 / group * half + g;
        turn_part(blocks, kind, !half, step, &halves[half], &halves[!half]);
        fetch_some(&b, kind, half, step, 16, 1);
        if (8 * step % group == 0) UNROLL for (int r = 0; r < R; r++) high[r][0] = high[r][1] = low[r][0] = low[r][1] = vi_set(0);
        vi c[2];
        UNROLL for (int h = 0; h < 2; h++) c[h] = codes_of(&halves[half], kind, j, q, h);
        UNROLL for (int r = 0; r < R; r++) {
          const char* at = x + r * ldx + 2 * group * g + 8 * step % group;
          const vi above = vi_two(at), below = vi_two(at + group);
          UNROLL for (int h = 0; h < 2; h++) high[r][h] = dot_two(high[r][h], c[h], above);
          UNROLL for (int h = 0; h < 2; h++) low[r][h] = dot_two(low[r][h], c[h], below);
        }
        if (8 * (step + 1) % group) continue;
        const vf scale = vf_load(scales[of]), bias = vf_load(biases[of]);
        UNROLL for (int r = 0; r < R; r++) {
          y[r] = vf_fma(vi_float(by_outputs(high[r], low[r])), vf_mul(vf_set(factors[r * ld + g]), scale), y[r]);
          y[r] = vf_fma(bias, vf_set(factors[r * ld + groups + g]), y[r]);
        }
      }
      x += 256, factors += 128 / group;
    }
  }
  UNROLL for (int r = 0; r < R; r++) vf_store(sums + r * MK_STRIP, y[r]);
}
