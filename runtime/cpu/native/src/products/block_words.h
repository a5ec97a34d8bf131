/* Sixteen rows of GGUF's blocks (`blocks.h`): codes as words for vi_dot, in the order of 8-bit codes, scales and biases. */
#pragma once
#include "products/blocks.h"
#include "products/codes.h"

/* Sixteen rows of blocks, at a block of each. */
struct at_blocks {
  const struct panel* rows;
  size_t at; /* bytes from a row's beginning */
};

/* Words of `bytes` <= 64 from byte `from` of the blocks on. */
INLINE void words_of(const struct at_blocks* b, int from, int bytes, vi* words) { vi_transpose(b->rows->rows, b->at + (size_t)from, bytes, b->rows->end, words); }

#define BYTES(value) vi_set((int32_t)(0x01010101u * (value)))

/* `bits` bits of every byte of a word, from bit `from` on, moved to bit `to`. */
INLINE vi bits_at(vi word, const int from, const int bits, const int to) {
  const vi moved = from > to ? vi_right(word, from - to) : from < to ? vi_left(word, to - from) : word;
  return vi_and(moved, BYTES(((1u << bits) - 1) << to));
}

/* The part-th of `parts` of what comes into the cache while half a block is worked on, the same half `ahead` panels further on: as
 * `fetch`. */
INLINE void fetch_some(const struct at_blocks* b, const int kind, const int half, const int part, const int parts, int ahead) {
  const int bytes = mk_blocks_of(kind).bytes, lines = (16 * bytes / 64 + 1) / 2, first = part * lines / parts;
  const int count = (part + 1) * lines / parts - first;
  if (count) bring_lines(line_of(b->rows, b->at, ahead) + 64 * (lines * half + first), count);
}

/* The codes of a half of a block, 128 elements, as they lie: words of their lower bits, and of their upper ones. */
struct half {
  vi low[16], high[16];
};

/* half: 0, and then 1 with what the first call gave, since what is short is read for both. */
INLINE void half_of_block(const struct at_blocks* b, const int kind, const int half, struct half* to) {
  switch (kind) {
    case MK_Q2_K:
      if (!half) words_of(b, 16, 64, to->low);
      break;
    case MK_Q3_K:
      if (!half) words_of(b, 32, 64, to->low), words_of(b, 0, 32, to->high);
      break;
    case MK_Q4_K: words_of(b, 16 + 64 * half, 64, to->low); break;
    case MK_Q5_K:
      words_of(b, 48 + 64 * half, 64, to->low);
      if (!half) words_of(b, 16, 32, to->high);
      break;
    case MK_Q6_K:
      words_of(b, 64 * half, 64, to->low);
      if (!half) words_of(b, 128, 64, to->high);
      break;
    default: words_of(b, 8 + 64 * half, 64, to->low); /* MK_IQ4_XS */
  }
}

/* The codes of a half's elements e to e + 3, a byte each; of IQ4 what is to be looked up. */
INLINE vi codes_at(const struct half* from, const int kind, const int half, const int e) {
  const int j = e / 32, t = e % 32 / 4, bit = 4 * half + j; /* as mk_block_code counts */
  switch (kind) {
    case MK_Q2_K: return bits_at(from->low[8 * half + t], 2 * j, 2, 0);
    case MK_Q3_K: return vi_or(bits_at(from->low[8 * half + t], 2 * j, 2, 0), bits_at(from->high[t], bit, 1, 2));
    case MK_Q4_K: return bits_at(from->low[8 * (j / 2) + t], 4 * (j % 2), 4, 0);
    case MK_Q5_K: return vi_or(bits_at(from->low[8 * (j / 2) + t], 4 * (j % 2), 4, 0), bits_at(from->high[t], bit, 1, 4));
    case MK_Q6_K:
      return vi_or(bits_at(from->low[8 * (j % 2) + t], 4 * (j / 2), 4, 0), bits_at(from->high[8 * half + t], 2 * j, 2, 4));
    default: return bits_at(from->low[4 * j + t % 4], 4 * (t / 4), 4, 0);
  }
}

/* Four codes of a byte -> words for vi_dot. table: of what the codes stand for, or NULL. */
INLINE void words_for_dot(vi codes, const uint8_t* table, vi to[4 / WORD]) {
  UNROLL for (int t = 0; t < 4 / WORD; t++) {
    vi a = WORD == 4 ? codes : vi_and(vi_right(codes, 8 * t), FIELDS(255));
    if (table) a = vi_lowered(vi_lookup(a, table));
    to[t] = vi_arranged(a);
  }
}

INLINE const uint8_t* table_of(const int kind) { return kind == MK_IQ4_XS ? IQ4 : NULL; }

/* The `part`-th 16 bits of words as float16. */
INLINE vf half_at(vi words, const int part) { return half_of(part ? vi_right(words, 16) : words); }

/* Byte i of words, as a number. */
INLINE vf byte_at(vi words, const int i, const int mask) { return vi_float(vi_and(vi_right(words, 8 * i), vi_set(mask))); }

INLINE void put_zeroed(int g, vf scale, const int zero, float (*scales)[LANES], float (*biases)[LANES]) {
  vf_store(scales[g], scale);
  vf_store(biases[g], vf_mul(scale, vf_set((float)-zero)));
}

/* minus: the minimum, below zero. */
INLINE void put_lowered(int g, vf scale, vf minus, float (*scales)[LANES], float (*biases)[LANES]) {
  vf_store(scales[g], scale);
  vf_store(biases[g], minus);
}

/* The float16 of a block's minima, below zero: products with whole numbers are exact. */
INLINE vf minus_at(vi words, const int part) { return vf_mul(half_at(words, part), vf_set(-1.f)); }

/* Eight scales and minima of 6 bits in 12 bytes, as Q5_K has them, too. */
static void scales_q4_k(const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
  vi head[16];
  words_of(b, 0, 16, head);
  const vf d = half_at(head[0], 0), minus = minus_at(head[0], 1);
  const vi first = bits_at(head[1], 0, 6, 0), second = bits_at(head[2], 0, 6, 0);
  const vi third = vi_or(bits_at(head[3], 0, 4, 0), bits_at(head[1], 6, 2, 4));
  const vi fourth = vi_or(bits_at(head[3], 4, 4, 0), bits_at(head[2], 6, 2, 4));
  UNROLL for (int i = 0; i < 4; i++) {
    put_lowered(i, vf_mul(d, byte_at(first, i, 255)), vf_mul(minus, byte_at(second, i, 255)), scales, biases);
    put_lowered(4 + i, vf_mul(d, byte_at(third, i, 255)), vf_mul(minus, byte_at(fourth, i, 255)), scales, biases);
  }
}

static void scales_q6_k(const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
  vi tail[16], last[16];
  words_of(b, 192, 16, tail);
  words_of(b, 208, 2, last);
  const vf d = half_at(last[0], 0);
  UNROLL for (int g = 0; g < 16; g++) { /* bytes with a sign */
    const vi moved = vi_and(vi_add(vi_right(tail[g / 4], 8 * (g % 4)), vi_set(128)), vi_set(255));
    put_zeroed(g, vf_mul(d, vi_float(vi_add(moved, vi_set(-128)))), 32, scales, biases);
  }
}

static void scales_q3_k(const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
  vi tail[16];
  words_of(b, 96, 14, tail);
  const vf d = half_at(tail[3], 0);
  UNROLL for (int j = 0; j < 4; j++) {
    const vi small = vi_or(bits_at(tail[j % 2], 4 * (j / 2), 4, 0), bits_at(tail[2], 2 * j, 2, 4));
    UNROLL for (int i = 0; i < 4; i++)
      put_zeroed(4 * j + i, vf_mul(d, vf_add(byte_at(small, i, 255), vf_set(-32.f))), 4, scales, biases);
  }
}

static void scales_q2_k(const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
  vi small[16], tail[16];
  words_of(b, 0, 16, small);
  words_of(b, 80, 4, tail);
  const vf d = half_at(tail[0], 0), minus = minus_at(tail[0], 1);
  UNROLL for (int g = 0; g < 16; g++) {
    const vi byte = vi_right(small[g / 4], 8 * (g % 4));
    put_lowered(g, vf_mul(d, byte_at(byte, 0, 15)), vf_mul(minus, byte_at(vi_right(byte, 4), 0, 15)), scales, biases);
  }
}

static void scales_iq4_xs(const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
  vi head[16];
  words_of(b, 0, 8, head);
  const vf d = half_at(head[0], 0);
  UNROLL for (int g = 0; g < 8; g++) {
    const vi small = vi_and(vi_right(head[1], 4 * g), vi_set(15)), top = vi_and(vi_right(head[0], 16 + 2 * g), vi_set(3));
    put_zeroed(g, vf_mul(d, vi_float(vi_add(vi_or(small, vi_left(top, 4)), vi_set(-32)))), 128, scales, biases);
  }
}

static void scales_iq4_nl(const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
  vi head[16];
  words_of(b, 0, 2, head);
  put_zeroed(0, half_at(head[0], 0), 128, scales, biases);
}

/* Not inlined: few_blocks would have it two dozen times. */
static __attribute__((noinline)) void unpack_block_scales(int kind, const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
  switch (kind) {
    case MK_Q2_K: scales_q2_k(b, scales, biases); break;
    case MK_Q3_K: scales_q3_k(b, scales, biases); break;
    case MK_Q4_K:
    case MK_Q5_K: scales_q4_k(b, scales, biases); break;
    case MK_Q6_K: scales_q6_k(b, scales, biases); break;
    case MK_IQ4_XS: scales_iq4_xs(b, scales, biases); break;
    default: scales_iq4_nl(b, scales, biases);
  }
}
