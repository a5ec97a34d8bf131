/* A panel of GGUF's blocks (`blocks.h`): codes as words for vi_dot, in the order of 8-bit codes, scales and biases. */
#pragma once
#include "blocks.h"
#include "products_tile.h"

/* Sixteen rows of blocks, at a block of each. */
struct at_blocks {
  const struct panel* rows;
  size_t at; /* bytes from a row's beginning */
};

/* Words of `bytes` <= 64 from byte `from` of the blocks on. */
INLINE void words_of(const struct at_blocks* b, int from, int bytes, vi* words) { vi_transpose(b->rows->rows, b->at + (size_t)from, bytes, b->rows->end, words); }

#define BYTES(value) vi_set((int32_t)(0x01010101u * (value)))

/* `bits` bits of every byte of a word, from bit `from` on, moved up to bit `to`. */
INLINE vi bits_at(vi word, const int from, const int bits, const int to) {
  return vi_left(vi_and(vi_right(word, from), BYTES((1u << bits) - 1)), to);
}

/* Four codes of a byte -> words of lanes. table: of what the codes stand for. */
INLINE void put_codes(vi codes, const uint8_t* table, int32_t (*out)[LANES]) {
  UNROLL for (int t = 0; t < 4 / WORD; t++) {
    vi a = WORD == 4 ? codes : vi_and(vi_right(codes, 8 * t), FIELDS(255));
    if (table) a = vi_lookup(a, table);
    vi_store(out[t], vi_arranged(a));
  }
}

/* Where the code of element e and its three neighbours go. */
#define CODES(e) (codes + (e) / WORD)

/* The `part`-th 16 bits of words as float16. */
INLINE vf half_at(vi words, const int part) { return half_of(part ? vi_right(words, 16) : words); }

/* Byte i of words, as a number. */
INLINE vf byte_at(vi words, const int i, const int mask) { return vi_float(vi_and(vi_right(words, 8 * i), vi_set(mask))); }

INLINE void put_zeroed(int g, vf scale, const int zero, float (*scales)[LANES], float (*biases)[LANES]) {
  vf_store(scales[g], scale);
  vf_store(biases[g], vf_mul(scale, vf_set((float)-zero)));
}

INLINE void put_lowered(int g, vf scale, vf low, float (*scales)[LANES], float (*biases)[LANES]) {
  vf_store(scales[g], scale);
  vf_store(biases[g], vf_mul(low, vf_set(-1.f)));
}

/* Eight scales and minima of 6 bits in 12 bytes, as Q5_K has them, too. */
static void scales_q4_k(const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
  vi head[16];
  words_of(b, 0, 16, head);
  const vf d = half_at(head[0], 0), low = half_at(head[0], 1);
  const vi first = bits_at(head[1], 0, 6, 0), second = bits_at(head[2], 0, 6, 0);
  const vi third = vi_or(bits_at(head[3], 0, 4, 0), bits_at(head[1], 6, 2, 4));
  const vi fourth = vi_or(bits_at(head[3], 4, 4, 0), bits_at(head[2], 6, 2, 4));
  UNROLL for (int i = 0; i < 4; i++) {
    put_lowered(i, vf_mul(d, byte_at(first, i, 255)), vf_mul(low, byte_at(second, i, 255)), scales, biases);
    put_lowered(4 + i, vf_mul(d, byte_at(third, i, 255)), vf_mul(low, byte_at(fourth, i, 255)), scales, biases);
  }
}

static void codes_q4_k(const struct at_blocks* b, int32_t (*codes)[LANES]) {
  vi q[16];
  UNROLL for (int c = 0; c < 4; c += 2) {
    words_of(b, 16 + 32 * c, 64, q);
    UNROLL for (int t = 0; t < 16; t++) {
      const int e = 64 * (c + t / 8) + 4 * (t % 8);
      put_codes(bits_at(q[t], 0, 4, 0), NULL, CODES(e));
      put_codes(bits_at(q[t], 4, 4, 0), NULL, CODES(e + 32));
    }
  }
}

static void codes_q5_k(const struct at_blocks* b, int32_t (*codes)[LANES]) {
  vi high[16], q[16];
  words_of(b, 16, 32, high);
  UNROLL for (int c = 0; c < 4; c++) {
    words_of(b, 48 + 32 * c, 32, q);
    UNROLL for (int t = 0; t < 8; t++) {
      const int e = 64 * c + 4 * t;
      put_codes(vi_or(bits_at(q[t], 0, 4, 0), bits_at(high[t], 2 * c, 1, 4)), NULL, CODES(e));
      put_codes(vi_or(bits_at(q[t], 4, 4, 0), bits_at(high[t], 2 * c + 1, 1, 4)), NULL, CODES(e + 32));
    }
  }
}

static void codes_q6_k(const struct at_blocks* b, int32_t (*codes)[LANES]) {
  vi low[16], high[16];
  UNROLL for (int h = 0; h < 2; h++) {
    words_of(b, 64 * h, 64, low);
    words_of(b, 128 + 32 * h, 32, high);
    UNROLL for (int t = 0; t < 8; t++) UNROLL for (int j = 0; j < 4; j++) {
      const vi code = vi_or(bits_at(low[8 * (j % 2) + t], 4 * (j / 2), 4, 0), bits_at(high[t], 2 * j, 2, 4));
      put_codes(code, NULL, CODES(128 * h + 32 * j + 4 * t));
    }
  }
}

static void scales_q6_k(const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
  vi tail[16];
  words_of(b, 192, 18, tail);
  const vf d = half_at(tail[4], 0);
  UNROLL for (int g = 0; g < 16; g++) { /* bytes with a sign */
    const vi moved = vi_and(vi_add(vi_right(tail[g / 4], 8 * (g % 4)), vi_set(128)), vi_set(255));
    put_zeroed(g, vf_mul(d, vi_float(vi_add(moved, vi_set(-128)))), 32, scales, biases);
  }
}

static void codes_q3_k(const struct at_blocks* b, int32_t (*codes)[LANES]) {
  vi high[16], low[16];
  words_of(b, 0, 32, high);
  UNROLL for (int h = 0; h < 2; h++) {
    words_of(b, 32 + 32 * h, 32, low);
    UNROLL for (int t = 0; t < 8; t++) UNROLL for (int j = 0; j < 4; j++)
      put_codes(vi_or(bits_at(low[t], 2 * j, 2, 0), bits_at(high[t], 4 * h + j, 1, 2)), NULL, CODES(128 * h + 32 * j + 4 * t));
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

static void codes_q2_k(const struct at_blocks* b, int32_t (*codes)[LANES]) {
  vi q[16];
  words_of(b, 16, 64, q);
  UNROLL for (int t = 0; t < 16; t++) UNROLL for (int j = 0; j < 4; j++)
    put_codes(bits_at(q[t], 2 * j, 2, 0), NULL, CODES(128 * (t / 8) + 32 * j + 4 * (t % 8)));
}

static void scales_q2_k(const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
  vi small[16], tail[16];
  words_of(b, 0, 16, small);
  words_of(b, 80, 4, tail);
  const vf d = half_at(tail[0], 0), low = half_at(tail[0], 1);
  UNROLL for (int g = 0; g < 16; g++) {
    const vi byte = vi_right(small[g / 4], 8 * (g % 4));
    put_lowered(g, vf_mul(d, byte_at(byte, 0, 15)), vf_mul(low, byte_at(vi_right(byte, 4), 0, 15)), scales, biases);
  }
}

/* Sixteen bytes: codes of 32 elements, the low halves first. */
INLINE void put_iq4(const vi q[4], int e, int32_t (*codes)[LANES]) {
  UNROLL for (int t = 0; t < 4; t++) {
    put_codes(bits_at(q[t], 0, 4, 0), IQ4, CODES(e + 4 * t));
    put_codes(bits_at(q[t], 4, 4, 0), IQ4, CODES(e + 16 + 4 * t));
  }
}

static void codes_iq4_xs(const struct at_blocks* b, int32_t (*codes)[LANES]) {
  vi q[16];
  UNROLL for (int part = 0; part < 2; part++) {
    words_of(b, 8 + 64 * part, 64, q);
    UNROLL for (int g = 0; g < 4; g++) put_iq4(q + 4 * g, 128 * part + 32 * g, codes);
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

static void codes_iq4_nl(const struct at_blocks* b, int32_t (*codes)[LANES]) {
  vi q[16];
  words_of(b, 2, 16, q);
  put_iq4(q, 0, codes);
}

static void scales_iq4_nl(const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
  vi head[16];
  words_of(b, 0, 2, head);
  put_zeroed(0, half_at(head[0], 0), 128, scales, biases);
}

static void unpack_block_codes(int kind, const struct at_blocks* b, int32_t (*codes)[LANES]) {
  switch (kind) {
    case MK_Q2_K: codes_q2_k(b, codes); break;
    case MK_Q3_K: codes_q3_k(b, codes); break;
    case MK_Q4_K: codes_q4_k(b, codes); break;
    case MK_Q5_K: codes_q5_k(b, codes); break;
    case MK_Q6_K: codes_q6_k(b, codes); break;
    case MK_IQ4_XS: codes_iq4_xs(b, codes); break;
    default: codes_iq4_nl(b, codes);
  }
}

static void unpack_block_scales(int kind, const struct at_blocks* b, float (*scales)[LANES], float (*biases)[LANES]) {
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

/* `count` elements of whole blocks from byte `at` of each row on. few: scales and biases alone, and nothing is fetched. */
static void unpack_blocks(const struct mk_matrix* w, const struct panel* p, size_t at, int count, int few, int32_t (*codes)[LANES],
                          float (*scales)[LANES], float (*biases)[LANES]) {
  const struct mk_blocks is = mk_blocks_of(w->kind);
  struct at_blocks b = {p, at};
  size_t fetched = at;
  for (int e = 0; e < count; e += is.weights, b.at += (size_t)is.bytes) {
    for (; !few && fetched < b.at + (size_t)is.bytes; fetched += 64) fetch(p, fetched, PANELS);
    unpack_block_scales(w->kind, &b, scales, biases);
    scales += is.weights / is.group, biases += is.weights / is.group;
    if (few) continue;
    unpack_block_codes(w->kind, &b, codes);
    codes += is.weights / WORD;
  }
}
