/* A panel of GGUF's blocks into a slab. */
#pragma once
#include "products/block_words.h"
#include "products/tile.h"

INLINE void put_codes(vi codes, const uint8_t* table, int32_t (*out)[LANES]) {
  vi words[4 / WORD];
  words_for_dot(codes, table, words);
  UNROLL for (int t = 0; t < 4 / WORD; t++) vi_store(out[t], words[t]);
}

/* A block's codes as words for vi_dot, one behind the other. */
INLINE void put_block(const struct at_blocks* b, const int kind, int32_t (*codes)[LANES]) {
  struct half words;
  UNROLL for (int half = 0; half < 2; half++) {
    half_of_block(b, kind, half, &words);
    UNROLL for (int e = 0; e < 128; e += 4) {
      fetch_some(b, kind, half, e / 4, 32, PANELS);
      put_codes(codes_at(&words, kind, half, e), table_of(kind), codes + (128 * half + e) / WORD);
    }
  }
}

/* Sixteen bytes: the low halves first. */
static void codes_iq4_nl(const struct at_blocks* b, int32_t (*codes)[LANES]) {
  vi q[16];
  const int lines = (16 * mk_blocks_of(MK_IQ4_NL).bytes + 63) / 64;
  words_of(b, 2, 16, q);
  UNROLL for (int t = 0; t < 8; t++) {
    if (t < lines) bring_lines(line_of(b->rows, b->at, PANELS) + 64 * t, 1);
    put_codes(bits_at(q[t % 4], 4 * (t / 4), 4, 0), IQ4, codes + 4 * t / WORD);
  }
}

static void unpack_block_codes(int kind, const struct at_blocks* b, int32_t (*codes)[LANES]) {
  switch (kind) {
    case MK_Q2_K: put_block(b, MK_Q2_K, codes); break;
    case MK_Q3_K: put_block(b, MK_Q3_K, codes); break;
    case MK_Q4_K: put_block(b, MK_Q4_K, codes); break;
    case MK_Q5_K: put_block(b, MK_Q5_K, codes); break;
    case MK_Q6_K: put_block(b, MK_Q6_K, codes); break;
    case MK_IQ4_XS: put_block(b, MK_IQ4_XS, codes); break;
    default: codes_iq4_nl(b, codes);
  }
}

/* `count` elements of whole blocks from byte `at` of each row on. */
static void unpack_blocks(const struct mk_matrix* w, const struct panel* p, size_t at, int count, int32_t (*codes)[LANES],
                          float (*scales)[LANES], float (*biases)[LANES]) {
  const struct mk_blocks is = mk_blocks_of(w->kind);
  struct at_blocks b = {p, at};
  for (int e = 0; e < count; e += is.weights, b.at += (size_t)is.bytes) {
    unpack_block_scales(w->kind, &b, scales, biases);
    unpack_block_codes(w->kind, &b, codes);
    scales += is.weights / is.group, biases += is.weights / is.group;
    codes += is.weights / WORD;
  }
}
