/* Three to eight rows by vpdpbusd: words of both panels are turned over, as `few` has them, which for so many rows costs less than
 * to turn over every row's sums. There they stay as they are, in the nearest cache, while up to four rows at a time go over them:
 * what x's words are is read once for both panels, since to read it for one takes as long as to multiply it.
 */
#pragma once
#include "products_tile.h"

enum { TURNED = 8, PASS = 4 }; /* rows, at most; those of them whose sums stay in registers */

/* 64 bytes of each of a panel's rows, fewer at their end -> words, outputs in lanes. */
INLINE void turn(const struct panel* p, size_t at, int bytes, vi words[16]) {
  vi turned[16];
  vi_transpose(p->rows, at, bytes < 64 ? bytes : 64, p->end, turned);
  UNROLL for (int i = 0; i < 16; i++) vi_store(words + i, turned[i]);
}

/* What the first of some rows has from here on. */
struct passing {
  const char* x;
  const float* factors; /* of its blocks: scales, and as many sums behind the last one */
  float* sums;
};

INLINE struct passing row_of(struct passing first, int row, size_t ldx) {
  return (struct passing){first.x + row * ldx, (const float*)((const char*)first.factors + row * ldx), first.sums + row * MK_STRIP};
}

/* R rows times `left` bytes of words, 64 at most, added to sums. b: their first block's place in the slab. lines: what is asked for
 * meanwhile, for each panel; or NULL. */
INLINE void pass(const struct slab* s, vi (*const words)[16], int b, int left, const char* const* lines, const struct passing first,
                 size_t ldx, size_t blocks, const int bits, const int fp4, const int block, const int R) {
  const int in_block = block / WORD, in_word = 32 / bits / WORD; /* words of x */
  const char* x[PASS];
  UNROLL for (int r = 0; r < R; r++) {
    x[r] = first.x + r * ldx;
    __asm__("" : "+r"(x[r])); /* else GCC has, in memory, an offset from first.x for every word of every row */
  }
  for (int i = 0; i * block * bits < 512 && i * block * bits / 8 < left; i++) {
    vi high[PASS][PANELS], low[PASS][PANELS]; /* by x's high bytes and its low ones */
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) high[r][p] = low[r][p] = vi_set(0);
    UNROLL for (int t = 0; t < in_block; t++) {
      vi codes[PANELS];
      UNROLL for (int p = 0; p < PANELS; p++) {
        if (lines && t % in_word == 0) bring_lines(lines[p] + 64 * ((i * in_block + t) / in_word), 1);
        codes[p] = unpacked(words[p] + (i * in_block + t) / 8 * bits, bits, fp4, t % 8);
      }
      UNROLL for (int r = 0; r < R; r++) {
        const int32_t above = word(x[r] + 4 * t), below = word(x[r] + block + 4 * t);
        UNROLL for (int p = 0; p < PANELS; p++) high[r][p] = vi_dot(high[r][p], codes[p], above);
        UNROLL for (int p = 0; p < PANELS; p++) low[r][p] = vi_dot(low[r][p], codes[p], below);
      }
    }
    const int g = s->per_group == 2 ? (b + i) / 2 : b + i;
    UNROLL for (int p = 0; p < PANELS; p++) {
      const vf scale = vf_load(s->scales[p][g]), bias = vf_load(s->biases[p][g]);
      UNROLL for (int r = 0; r < R; r++) {
        const struct passing row = row_of(first, r, ldx);
        const vi sum = vi_add(vi_left(high[r][p], 8), low[r][p]);
        const vf y = vf_fma(vi_float(sum), vf_mul(vf_set(row.factors[i]), scale), vf_load(row.sums + p * LANES));
        vf_store(row.sums + p * LANES, vf_fma(bias, vf_set(row.factors[i + blocks]), y));
      }
    }
    UNROLL for (int r = 0; r < R; r++) x[r] += 2 * block;
  }
}

/* R rows times both panels of a slab, of which only scales and biases are unpacked, added to sums. `block` is the slab's. */
INLINE void few_turned(const struct slab* s, const struct panel* panels, size_t at, const char* x, size_t ldx, int k, float* sums,
                       const int bits, const int fp4, const int block, const int R) {
  const size_t blocks = (size_t)(k / block), scales = (size_t)(k + 31) / 32 * 64;
  const int together = R > PASS ? (R + 1) / 2 : R, each = 512 / bits; /* rows; elements that are turned over at once */
  struct passing first = {x + (size_t)s->first * 2, (const float*)(x + scales) + s->first / block, sums};
  _Alignas(64) vi words[PANELS][16];
  for (int left = s->count * bits / 8, b = 0; left > 0; left -= 64, b += each / block, at += 64) {
    const char* lines[PANELS];
    for (int p = 0; p < PANELS; p++) turn(&panels[p], at, left, words[p]), lines[p] = line_of(&panels[p], at, PANELS);
    pass(s, words, b, left, lines, first, ldx, blocks, bits, fp4, block, together);
    __asm__("" : : : "memory"); /* else GCC keeps words for the other rows in registers, which it has not */
    if (s->calls) call_some(s->calls, s->each);
    if (R > PASS) pass(s, words, b, left, NULL, row_of(first, together, ldx), ldx, blocks, bits, fp4, block, R - together);
    first.x += 2 * each, first.factors += each / block;
  }
}
