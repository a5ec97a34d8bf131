/* GGUF's blocks, read where they lie: 256 numbers of a row (32 in IQ4_NL), codes and scales side by side.
 *
 * Layouts: block_q2_K and its like in ggml-common.h of ggml (MIT). A number is scale * (code - zero), or
 * scale * code - minimum; scales are a 16-bit float times a small whole number, exact in float32.
 */
#pragma once
#include "products/products.h"

/* What a type's blocks are. bytes: of one; weights: numbers of one; group: numbers that share a scale; zero: the code of 0. */
struct mk_blocks {
  int bytes, weights, group, zero;
};

static inline struct mk_blocks mk_blocks_of(int kind) {
  switch (kind) {
    case MK_Q2_K: return (struct mk_blocks){84, 256, 16, 0};
    case MK_Q3_K: return (struct mk_blocks){110, 256, 16, 4};
    case MK_Q4_K: return (struct mk_blocks){144, 256, 32, 0};
    case MK_Q5_K: return (struct mk_blocks){176, 256, 32, 0};
    case MK_Q6_K: return (struct mk_blocks){210, 256, 16, 32};
    case MK_IQ4_XS: return (struct mk_blocks){136, 256, 32, 128};
    default: return (struct mk_blocks){18, 32, 32, 128}; /* MK_IQ4_NL */
  }
}

/* The values of IQ4's codes, moved up by 128. */
static const uint8_t IQ4[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

/* The code of a block's element e; of IQ4 what it stands for, moved up. */
static inline int mk_block_code(int kind, const uint8_t* block, int e) {
  const int l = e % 32, chunk = e / 64, half = e / 128, j = e % 128 / 32;
  switch (kind) {
    case MK_Q2_K: return block[16 + 32 * half + l] >> 2 * j & 3;
    case MK_Q3_K: return (block[32 + 32 * half + l] >> 2 * j & 3) | (block[l] >> e / 32 & 1) << 2;
    case MK_Q4_K: return block[16 + 32 * chunk + l] >> 4 * (e / 32 % 2) & 15;
    case MK_Q5_K: return (block[48 + 32 * chunk + l] >> 4 * (e / 32 % 2) & 15) | (block[16 + l] >> e / 32 & 1) << 4;
    case MK_Q6_K: return (block[64 * half + 32 * (j % 2) + l] >> 4 * (j / 2) & 15) | (block[128 + 32 * half + l] >> 2 * j & 3) << 4;
    case MK_IQ4_XS: return IQ4[block[8 + 16 * (e / 32) + e % 16] >> 4 * (l / 16) & 15];
    default: return IQ4[block[2 + e % 16] >> 4 * (l / 16) & 15];
  }
}

/* A group's scale and minimum: whole numbers, times the float16 at these bytes. low_at: -1 where there is no minimum. */
struct mk_small {
  int at, scale, low_at, low;
};

static inline struct mk_small mk_block_scale(int kind, const uint8_t* block, int g) {
  const uint8_t *first = block + 4, *second = block + 8, *third = block + 12; /* of Q4_K and Q5_K: 6 bits for each of 16 */
  const int i = g % 4;
  switch (kind) {
    case MK_Q2_K: return (struct mk_small){80, block[g] & 15, 82, block[g] >> 4};
    case MK_Q3_K: {
      const int low = block[96 + g % 8] >> 4 * (g / 8) & 15, top = block[104 + i] >> 2 * (g / 4) & 3;
      return (struct mk_small){108, (low | top << 4) - 32, -1, 0};
    }
    case MK_Q4_K:
    case MK_Q5_K:
      if (g < 4) return (struct mk_small){0, first[i] & 63, 2, second[i] & 63};
      return (struct mk_small){0, (third[i] & 15) | first[i] >> 6 << 4, 2, third[i] >> 4 | second[i] >> 6 << 4};
    case MK_Q6_K: return (struct mk_small){208, (int8_t)block[192 + g], -1, 0};
    case MK_IQ4_XS: return (struct mk_small){0, ((block[4 + g / 2] >> 4 * (g % 2) & 15) | (block[2 + g / 4] >> 2 * i & 3) << 4) - 32, -1, 0};
    default: return (struct mk_small){0, 1, -1, 0};
  }
}
