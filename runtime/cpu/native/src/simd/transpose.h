/* 16 x 16 lanes turned over: lane j of row i becomes lane i of row j. Bits move, whatever they stand for. */
#pragma once
#include "simd/registers.h"

#if defined(__AVX512F__)
INLINE void transpose16(vf* r) {
  __m512 a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#define PD(op, x, y) _mm512_castpd_ps(op(_mm512_castps_pd(x), _mm512_castps_pd(y)))
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) { /* lane group g of b[i + j]: column 4 g + j of rows i to i + 3 */
    b[i] = PD(_mm512_unpacklo_pd, a[i], a[i + 2]);
    b[i + 1] = PD(_mm512_unpackhi_pd, a[i], a[i + 2]);
    b[i + 2] = PD(_mm512_unpacklo_pd, a[i + 1], a[i + 3]);
    b[i + 3] = PD(_mm512_unpackhi_pd, a[i + 1], a[i + 3]);
  }
#undef PD
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) { /* a 4 x 4 transpose of groups of four lanes */
    __m512 low01 = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x44), high01 = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xee);
    __m512 low23 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x44), high23 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xee);
    r[j] = _mm512_shuffle_f32x4(low01, low23, 0x88);
    r[4 + j] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
    r[8 + j] = _mm512_shuffle_f32x4(high01, high23, 0x88);
    r[12 + j] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
  }
}
INLINE vf bf16_even(vf words) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(words), 16)); }
INLINE vf bf16_odd(vf words) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(words), _mm512_set1_epi32((int)0xffff0000)));
}

#elif defined(__AVX2__)
INLINE void transpose8(__m256* r) {
  __m256 a[8], b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    r[j] = _mm256_permute2f128_ps(b[j], b[4 + j], 0x20);
    r[4 + j] = _mm256_permute2f128_ps(b[j], b[4 + j], 0x31);
  }
}
INLINE void transpose16(vf* r) {
  __m256 part[4][8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) part[0][i] = r[i].a, part[1][i] = r[i].b, part[2][i] = r[i + 8].a, part[3][i] = r[i + 8].b;
  transpose8(part[0]), transpose8(part[1]), transpose8(part[2]), transpose8(part[3]);
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) r[i] = TWO(part[0][i], part[2][i]), r[i + 8] = TWO(part[1][i], part[3][i]);
}
INLINE __m256 even8(__m256 w) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(w), 16)); }
INLINE __m256 odd8(__m256 w) {
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(w), _mm256_set1_epi32((int)0xffff0000)));
}
INLINE vf bf16_even(vf words) { return TWO(even8(words.a), even8(words.b)); }
INLINE vf bf16_odd(vf words) { return TWO(odd8(words.a), odd8(words.b)); }

#else
INLINE void transpose16(vf* r) {
  uint32_t from[16][16], to[16][16];
  memcpy(from, r, sizeof from);
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) to[j][i] = from[i][j];
  memcpy(r, to, sizeof to);
}
INLINE vf bf16_part(vf words, int shift, uint32_t mask) {
  uint32_t bits[16];
  memcpy(bits, &words, sizeof bits);
  for (int i = 0; i < 16; i++) bits[i] = bits[i] << shift & mask;
  memcpy(&words, bits, sizeof bits);
  return words;
}
INLINE vf bf16_even(vf words) { return bf16_part(words, 16, 0xffff0000); }
INLINE vf bf16_odd(vf words) { return bf16_part(words, 0, 0xffff0000); }
#endif
