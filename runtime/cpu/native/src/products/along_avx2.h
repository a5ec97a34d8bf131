/* What `few_along.h` computes by, with vpmaddwd or, where AVX2 has it, vpdpbusd. */
#pragma once
#include "products/tile.h"

#if defined(__AVXVNNI__)
enum { WORDS = 2 }; /* vectors that 64 codes of an output become */

/* x's bytes for 64 elements, for each field of a byte of codes, or for the first 32 and the second where bits are 8. */
struct met {
  __m256i high[2], low[2];
};

/* Of 64 elements, the first 32 and the second. */
INLINE void bytes_of(const char* first, const char* second, const int bits, __m256i to[2]) {
  const __m256i a = _mm256_loadu_si256((const __m256i*)first), b = _mm256_loadu_si256((const __m256i*)second);
  to[0] = bits == 8 ? a : _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(a, b), 0xd8); /* the fields take turns, two words each */
  to[1] = bits == 8 ? b : _mm256_permute4x64_epi64(_mm256_unpackhi_epi64(a, b), 0xd8);
}

INLINE struct met met_of(const char* x, const int bits, const int block) {
  struct met to;
  const int second = block == 64 ? 32 : 64, low = block == 64 ? 64 : 32;
  bytes_of(x, x + second, bits, to.high), bytes_of(x + low, x + low + second, bits, to.low);
  return to;
}

/* 64 codes of one output, four in a word, as `met` has x. `half`: the second 32 are not there. */
INLINE void codes_of(const char* from, int half, const int bits, const int fp4, __m256i fields[2]) {
  if (bits == 8) {
    UNROLL for (int i = 0; i < 2; i++) fields[i] = i && half ? _mm256_setzero_si256() : _mm256_loadu_si256((const __m256i*)from + i);
    return;
  }
  const __m256i codes = half ? _mm256_castsi128_si256(_mm_loadu_si128((const __m128i*)from)) : _mm256_loadu_si256((const __m256i*)from);
  const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)FP4));
  UNROLL for (int i = 0; i < 2; i++) {
    fields[i] = _mm256_and_si256(_mm256_srli_epi16(codes, 4 * i), _mm256_set1_epi8(15));
    if (fp4) fields[i] = _mm256_shuffle_epi8(table, fields[i]);
  }
}

INLINE __m256i sums_with(const __m256i fields[2], const struct met* x, const int bits, const int block) {
  const __m256i zero = _mm256_setzero_si256();
  if (bits == 8 && block == 32) { /* each vector is a block */
    __m256i of[2];
    UNROLL for (int i = 0; i < 2; i++) of[i] = _mm256_add_epi32(_mm256_slli_epi32(dot8(zero, fields[i], x->high[i]), 8), dot8(zero, fields[i], x->low[i]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(of[0], of[1], 0x20), _mm256_permute2x128_si256(of[0], of[1], 0x31));
  }
  const __m256i high = dot8(dot8(zero, fields[0], x->high[0]), fields[1], x->high[1]);
  const __m256i low = dot8(dot8(zero, fields[0], x->low[0]), fields[1], x->low[1]);
  return _mm256_add_epi32(_mm256_slli_epi32(high, 8), low);
}

#else
enum { WORDS = 4 }; /* vectors that 64 codes of an output become */

/* x's pairs of 16 bits for 64 elements: for each field of a word of codes, or each field of two, where bits are 8. */
struct met {
  __m256i pairs[4];
};

INLINE struct met met_of(const char* x, const int bits, const int block) {
  (void)block; /* pairs lie alike in every block */
  __m256i z[4];
  UNROLL for (int i = 0; i < 4; i++) z[i] = _mm256_loadu_si256((const __m256i*)x + i);
  if (bits == 8) { /* pairs of two fields take turns */
#define EVERY_SECOND(a, b, from) _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), from)), 0xd8)
    return (struct met){{EVERY_SECOND(z[0], z[1], 0x88), EVERY_SECOND(z[0], z[1], 0xdd), EVERY_SECOND(z[2], z[3], 0x88), EVERY_SECOND(z[2], z[3], 0xdd)}};
  }
  const __m256i a = _mm256_unpacklo_epi32(z[0], z[1]), b = _mm256_unpackhi_epi32(z[0], z[1]);
  const __m256i c = _mm256_unpacklo_epi32(z[2], z[3]), d = _mm256_unpackhi_epi32(z[2], z[3]);
  const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
#define IN_ORDER(v) _mm256_permutevar8x32_epi32(v, in_order)
  return (struct met){{IN_ORDER(_mm256_unpacklo_epi64(a, c)), IN_ORDER(_mm256_unpackhi_epi64(a, c)), IN_ORDER(_mm256_unpacklo_epi64(b, d)),
                       IN_ORDER(_mm256_unpackhi_epi64(b, d))}};
}

/* 64 codes of one output, two of 16 bits in a word, as `met` has x. `half`: the second 32 are not there. */
INLINE void codes_of(const char* from, int half, const int bits, const int fp4, __m256i fields[4]) {
  if (bits == 8) {
    UNROLL for (int i = 0; i < 4; i += 2) {
      const __m256i codes = _mm256_loadu_si256((const __m256i*)from + i / 2);
      fields[i] = _mm256_and_si256(codes, _mm256_set1_epi16(255)), fields[i + 1] = _mm256_srli_epi16(codes, 8);
    }
    return;
  }
  const __m256i codes = half ? _mm256_castsi128_si256(_mm_loadu_si128((const __m128i*)from)) : _mm256_loadu_si256((const __m256i*)from);
  UNROLL for (int i = 0; i < 4; i++) {
    fields[i] = _mm256_srli_epi16(codes, 4 * i);
    if (i < 3) fields[i] = _mm256_and_si256(fields[i], _mm256_set1_epi16(15));
    if (fp4) { /* the upper byte, which has the highest bit, becomes zero */
      const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)FP4));
      fields[i] = _mm256_shuffle_epi8(table, _mm256_or_si256(fields[i], _mm256_set1_epi16((short)0x8000)));
    }
  }
}

INLINE __m256i sums_with(const __m256i fields[4], const struct met* x, const int bits, const int block) {
  (void)bits, (void)block;
  const __m256i a = _mm256_add_epi32(_mm256_madd_epi16(fields[0], x->pairs[0]), _mm256_madd_epi16(fields[1], x->pairs[1]));
  const __m256i b = _mm256_add_epi32(_mm256_madd_epi16(fields[2], x->pairs[2]), _mm256_madd_epi16(fields[3], x->pairs[3]));
  return _mm256_add_epi32(a, b);
}

#endif

/* Four outputs' sums, added up within each lane of 128 bits: there the four stand in order. */
INLINE __m256i halves_of(const __m256i a[4]) {
  const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a[0], a[1]), _mm256_unpackhi_epi32(a[0], a[1]));
  const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(a[2], a[3]), _mm256_unpackhi_epi32(a[2], a[3]));
  return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

/* Sums of four outputs in each vector, in both its lanes. */
struct quads {
  __m256i halves[4];
};

INLINE void four_of(const char* const rows[4], size_t at, int half, const struct met* met, struct quads* to, const int quad, const int bits,
                    const int fp4, const int block, const int R) {
  __m256i four[FEW][4];
  UNROLL for (int j = 0; j < 4; j++) {
    __m256i fields[WORDS];
    codes_of(rows[j] + at, half, bits, fp4, fields);
    UNROLL for (int r = 0; r < R; r++) four[r][j] = sums_with(fields, &met[r], bits, block);
  }
  UNROLL for (int r = 0; r < R; r++) to[r].halves[quad] = halves_of(four[r]);
}

INLINE void of_blocks(const struct quads* quads, const int block, vi of[2]) {
  const __m256i* h = quads->halves;
  of[0] = (vi){_mm256_permute2x128_si256(h[0], h[1], 0x20), _mm256_permute2x128_si256(h[2], h[3], 0x20)};
  of[1] = (vi){_mm256_permute2x128_si256(h[0], h[1], 0x31), _mm256_permute2x128_si256(h[2], h[3], 0x31)};
  if (block == 64) of[0] = vi_add(of[0], of[1]);
}
