/* Sixteen lanes of 32 bits, and the dot product of a column: what a word holds of a row's elements differs.
 *
 * With vpdpbusd, sdot and usdot: four bytes of codes; x is 256 * high + low, two signed bytes, and takes two passes.
 * Elsewhere: two codes of 16 bits, times two of x.
 *
 * vi_transpose: words of 16 rows -> vectors of 16 rows; out[i] holds word i of each. `bytes` <= 64 of every row are
 * read, from `at` on; what out holds beyond them is arbitrary. Nothing is read from `end` on, where the matrix ends.
 */
#pragma once
#include "simd/registers.h"
#include <stddef.h>

/* Dot products of bytes on ARM, of two signed ones and of a code's unsigned one with x's signed one. */
#if defined(__ARM_FEATURE_DOTPROD) && !defined(MK_NO_SIMD)
#define MK_SDOT 1
#endif
#if MK_SDOT && defined(__ARM_FEATURE_MATMUL_INT8)
#define MK_USDOT 1
#endif

#if defined(__AVX512VNNI__)
enum { WORD = 4 }; /* elements per word */
typedef __m512i vi;
INLINE vi vi_load(const void* p) { return _mm512_loadu_si512(p); }
INLINE void vi_store(void* p, vi a) { _mm512_storeu_si512(p, a); }
INLINE vi vi_set(int32_t a) { return _mm512_set1_epi32(a); }
INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
INLINE vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
INLINE vi vi_left(vi a, int by) { return _mm512_slli_epi32(a, by); }
INLINE vi vi_right(vi a, int by) { return _mm512_srli_epi32(a, by); } /* zeros come in */
INLINE vf vi_float(vi a) { return _mm512_cvtepi32_ps(a); }
INLINE vi vi_nearest(vf a) { return _mm512_cvtps_epi32(a); } /* even where two are as near */
INLINE vf vi_as_float(vi a) { return _mm512_castsi512_ps(a); }
INLINE vi vi_of_float(vf a) { return _mm512_castps_si512(a); }
INLINE vi vi_dot(vi sum, vi codes, int32_t x) {
  /* Not the intrinsic: GCC 12 copies its operands forth and back, two moves for each of these. */
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(_mm512_set1_epi32(x)));
  return sum;
}
/* Bytes below 16 -> entries of a table */
INLINE vi vi_lookup(vi a, const uint8_t table[16]) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)table)), a);
}
INLINE void vi_narrow(int16_t* p, vi a) { _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(a)); }
INLINE vi vi_arranged(vi a) { return a; }

/* 32 bytes from a on, and 32 from b on. */
INLINE vi vi_halves(const char* a, const char* b) {
  const vi first = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i*)a));
  return _mm512_inserti64x4(first, _mm256_loadu_si256((const __m256i*)b), 1);
}

/* Two words side by side, in all lanes. */
INLINE vi vi_two(const char* p) {
  int64_t words;
  memcpy(&words, p, 8);
  return _mm512_set1_epi64(words);
}

/* out[c]: word c of each lane of 128 bits, of four rows side by side. */
INLINE void turn_four(const vi row[4], vi out[4]) {
  const vi low = _mm512_unpacklo_epi32(row[0], row[1]), high = _mm512_unpackhi_epi32(row[0], row[1]);
  const vi low2 = _mm512_unpacklo_epi32(row[2], row[3]), high2 = _mm512_unpackhi_epi32(row[2], row[3]);
  out[0] = _mm512_unpacklo_epi64(low, low2), out[1] = _mm512_unpackhi_epi64(low, low2);
  out[2] = _mm512_unpacklo_epi64(high, high2), out[3] = _mm512_unpackhi_epi64(high, high2);
}

/* The c-th that came out of all sixteen rows, four at a time: words c, c + 4, c + 8 and c + 12. */
INLINE void every_fourth(const vi fours[16], const int c, vi out[4]) {
  const vi low = _mm512_shuffle_i32x4(fours[c], fours[c + 4], 0x44), high = _mm512_shuffle_i32x4(fours[c], fours[c + 4], 0xee);
  const vi low2 = _mm512_shuffle_i32x4(fours[c + 8], fours[c + 12], 0x44), high2 = _mm512_shuffle_i32x4(fours[c + 8], fours[c + 12], 0xee);
  out[0] = _mm512_shuffle_i32x4(low, low2, 0x88), out[1] = _mm512_shuffle_i32x4(low, low2, 0xdd);
  out[2] = _mm512_shuffle_i32x4(high, high2, 0x88), out[3] = _mm512_shuffle_i32x4(high, high2, 0xdd);
}

INLINE void transpose(const vi row[16], vi out[16]) {
  vi fours[16];
  UNROLL for (int r = 0; r < 16; r += 4) turn_four(row + r, fours + r);
  UNROLL for (int c = 0; c < 4; c++) {
    vi words[4];
    every_fourth(fours, c, words);
    UNROLL for (int i = 0; i < 4; i++) out[c + 4 * i] = words[i];
  }
}

/* Of no more than 16 bytes: four rows share a register, so that lanes of 128 bits are all there is to turn over. */
INLINE void transpose_short(const char* const rows[16], size_t at, int bytes, vi out[4]) {
  const __mmask16 some = (__mmask16)((1u << bytes) - 1);
  vi a[4];
  UNROLL for (int i = 0; i < 4; i++) {
    __m128i row[4];
    UNROLL for (int j = 0; j < 4; j++) {
      const char* from = rows[4 * j + i] + at;
      row[j] = bytes == 16 ? _mm_loadu_si128((const __m128i*)from) : _mm_maskz_loadu_epi8(some, from);
    }
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(row[0]), row[1], 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(row[2]), row[3], 1);
    a[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  turn_four(a, out);
}

INLINE void vi_transpose(const char* const rows[16], size_t at, int bytes, const char* end, vi out[16]) {
  (void)end;
  if (__builtin_constant_p(bytes) && bytes <= 16) {
    transpose_short(rows, at, bytes, out);
    return;
  }
  vi row[16];
  if (bytes < 64) {
    const __mmask64 some = ((__mmask64)1 << bytes) - 1;
    UNROLL for (int r = 0; r < 16; r++) row[r] = _mm512_maskz_loadu_epi8(some, rows[r] + at);
  } else { /* half as long as behind a mask */
    UNROLL for (int r = 0; r < 16; r++) row[r] = vi_load(rows[r] + at);
  }
  transpose(row, out);
}

/* As vi_transpose, of 32 bytes of rows that lie `apart` bytes from one to the next: half the work. */
INLINE void vi_turn(const char* row, size_t apart, vi out[8]) {
  vi lower[4], upper[4]; /* 16 bytes of four rows each */
  UNROLL for (int r = 0; r < 4; r++, row += apart) {
    const char* far = row + 8 * apart;
    __asm__("" : "+r"(row), "+r"(far)); /* else GCC has, in memory, where each row lies */
    const vi a = vi_halves(row, row + 4 * apart), b = vi_halves(far, far + 4 * apart);
    lower[r] = _mm512_shuffle_i32x4(a, b, 0x88), upper[r] = _mm512_shuffle_i32x4(a, b, 0xdd);
  }
  turn_four(lower, out), turn_four(upper, out + 4);
}

#else
#if defined(__AVXVNNI__) || MK_SDOT
enum { WORD = 4 };
#else
enum { WORD = 2 };
#endif
#if defined(__AVX2__)
typedef struct { __m256i a, b; } vi;
#define BOTH(f) ((vi){f(x.a, y.a), f(x.b, y.b)})
INLINE vi vi_load(const void* p) { return (vi){_mm256_loadu_si256(p), _mm256_loadu_si256((const __m256i*)p + 1)}; }
INLINE void vi_store(void* p, vi x) { _mm256_storeu_si256(p, x.a), _mm256_storeu_si256((__m256i*)p + 1, x.b); }
INLINE vi vi_set(int32_t a) { return (vi){_mm256_set1_epi32(a), _mm256_set1_epi32(a)}; }
INLINE vi vi_add(vi x, vi y) { return BOTH(_mm256_add_epi32); }
INLINE vi vi_and(vi x, vi y) { return BOTH(_mm256_and_si256); }
INLINE vi vi_or(vi x, vi y) { return BOTH(_mm256_or_si256); }
INLINE vi vi_max(vi x, vi y) { return BOTH(_mm256_max_epi32); }
INLINE vi vi_left(vi x, int by) { return (vi){_mm256_slli_epi32(x.a, by), _mm256_slli_epi32(x.b, by)}; }
INLINE vi vi_right(vi x, int by) { return (vi){_mm256_srli_epi32(x.a, by), _mm256_srli_epi32(x.b, by)}; }
INLINE vf vi_float(vi x) { return TWO(_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)); }
INLINE vi vi_nearest(vf x) { return (vi){_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
INLINE vf vi_as_float(vi x) { return TWO(_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)); }
INLINE vi vi_of_float(vf x) { return (vi){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
#if defined(__AVXVNNI__)
INLINE __m256i dot8(__m256i sum, __m256i codes, __m256i x) { /* not the intrinsic: see above */
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(codes), "x"(x));
  return sum;
}
INLINE vi vi_dot(vi sum, vi codes, int32_t x) {
  const __m256i four = _mm256_set1_epi32(x);
  return (vi){dot8(sum.a, codes.a, four), dot8(sum.b, codes.b, four)};
}
INLINE vi vi_lookup(vi x, const uint8_t table[16]) {
  const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)table));
  return (vi){_mm256_shuffle_epi8(t, x.a), _mm256_shuffle_epi8(t, x.b)};
}
#else
INLINE vi vi_dot(vi sum, vi codes, int32_t x) {
  const __m256i pair = _mm256_set1_epi32(x);
  return vi_add(sum, (vi){_mm256_madd_epi16(codes.a, pair), _mm256_madd_epi16(codes.b, pair)});
}
INLINE vi vi_lookup(vi x, const uint8_t table[16]) { /* of words of 16 bits: the high byte of each becomes zero */
  const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)table)), high = _mm256_set1_epi16((short)0x8000);
  return (vi){_mm256_shuffle_epi8(t, _mm256_or_si256(x.a, high)), _mm256_shuffle_epi8(t, _mm256_or_si256(x.b, high))};
}
#endif
INLINE void vi_narrow(int16_t* p, vi x) {
  _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8));
}
INLINE vi vi_arranged(vi a) { return a; }

INLINE void transpose8(const __m256i rows[8], __m256i out[8]) {
  __m256i a[8], b[8];
  UNROLL for (int r = 0; r < 8; r += 2) {
    a[r] = _mm256_unpacklo_epi32(rows[r], rows[r + 1]);
    a[r + 1] = _mm256_unpackhi_epi32(rows[r], rows[r + 1]);
  }
  UNROLL for (int r = 0; r < 8; r += 4) {
    b[r] = _mm256_unpacklo_epi64(a[r], a[r + 2]);
    b[r + 1] = _mm256_unpackhi_epi64(a[r], a[r + 2]);
    b[r + 2] = _mm256_unpacklo_epi64(a[r + 1], a[r + 3]);
    b[r + 3] = _mm256_unpackhi_epi64(a[r + 1], a[r + 3]);
  }
  UNROLL for (int c = 0; c < 4; c++) {
    out[c] = _mm256_permute2x128_si256(b[c], b[c + 4], 0x20);
    out[c + 4] = _mm256_permute2x128_si256(b[c], b[c + 4], 0x31);
  }
}

/* Words 0 to 7 of 16 rows, 8 vectors. */
INLINE void transpose_half(const char* const rows[16], vi out[8]) {
  __m256i upper[8], lower[8];
  UNROLL for (int r = 0; r < 8; r++) upper[r] = _mm256_loadu_si256((const __m256i*)rows[r]);
  UNROLL for (int r = 0; r < 8; r++) lower[r] = _mm256_loadu_si256((const __m256i*)rows[r + 8]);
  transpose8(upper, upper), transpose8(lower, lower);
  UNROLL for (int c = 0; c < 8; c++) out[c] = (vi){upper[c], lower[c]};
}

#elif defined(__aarch64__) && !defined(MK_NO_SIMD)
#define EVERY(type, e) \
  type r;             \
  for (int i = 0; i < 4; i++) r.v[i] = (e); \
  return r
typedef struct { int32x4_t v[4]; } vi;
INLINE vi vi_load(const void* p) { EVERY(vi, vld1q_s32((const int32_t*)p + 4 * i)); }
INLINE void vi_store(void* p, vi a) {
  for (int i = 0; i < 4; i++) vst1q_s32((int32_t*)p + 4 * i, a.v[i]);
}
INLINE vi vi_set(int32_t a) { EVERY(vi, vdupq_n_s32(a)); }
INLINE vi vi_add(vi a, vi b) { EVERY(vi, vaddq_s32(a.v[i], b.v[i])); }
INLINE vi vi_and(vi a, vi b) { EVERY(vi, vandq_s32(a.v[i], b.v[i])); }
INLINE vi vi_or(vi a, vi b) { EVERY(vi, vorrq_s32(a.v[i], b.v[i])); }
INLINE vi vi_max(vi a, vi b) { EVERY(vi, vmaxq_s32(a.v[i], b.v[i])); }
INLINE vi vi_left(vi a, int by) { EVERY(vi, vshlq_s32(a.v[i], vdupq_n_s32(by))); }
INLINE vi vi_right(vi a, int by) {
  EVERY(vi, vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a.v[i]), vdupq_n_s32(-by))));
}
INLINE vf vi_float(vi a) { EVERY(vf, vcvtq_f32_s32(a.v[i])); }
INLINE vi vi_nearest(vf a) { EVERY(vi, vcvtnq_s32_f32(a.v[i])); }
INLINE vf vi_as_float(vi a) { EVERY(vf, vreinterpretq_f32_s32(a.v[i])); }
INLINE vi vi_of_float(vf a) { EVERY(vi, vreinterpretq_s32_f32(a.v[i])); }
#if MK_SDOT
/* Codes times a lane of x in every lane. */
INLINE vi vi_dot_lane(vi sum, vi codes, int8x16_t x, const int lane) {
#if MK_USDOT
#define DOT(lane) vusdotq_laneq_s32(sum.v[i], vreinterpretq_u8_s32(codes.v[i]), x, lane)
#else
#define DOT(lane) vdotq_laneq_s32(sum.v[i], vreinterpretq_s8_s32(codes.v[i]), x, lane)
#endif
  EVERY(vi, lane == 0 ? DOT(0) : lane == 1 ? DOT(1) : lane == 2 ? DOT(2) : DOT(3)); /* an immediate */
}
#if MK_USDOT
/* Eights of bytes: of two outputs in each part of codes; of high bytes and of low ones in x. -> [output][high, low] */
INLINE vi vi_matmul(vi sum, vi codes, int8x16_t x) { EVERY(vi, vusmmlaq_s32(sum.v[i], vreinterpretq_u8_s32(codes.v[i]), x)); }
INLINE int32x4_t of_pairs(int32x4_t a, int32x4_t b) { return vaddq_s32(vshlq_n_s32(vuzp1q_s32(a, b), 8), vuzp2q_s32(a, b)); }
#endif
INLINE vi vi_arranged(vi a) { return a; }
INLINE vi vi_lookup(vi a, const uint8_t table[16]) {
  const uint8x16_t t = vld1q_u8(table);
  EVERY(vi, vreinterpretq_s32_u8(vqtbl1q_u8(t, vreinterpretq_u8_s32(a.v[i]))));
}
#else
/* Codes as vi_arranged leaves them: first elements of eight outputs, their second elements, then the other eight. */
INLINE vi vi_dot(vi sum, vi codes, int32_t x) {
  const int16x4_t pair = vreinterpret_s16_s32(vdup_n_s32(x));
  for (int i = 0; i < 2; i++) {
    const int16x8_t first = vreinterpretq_s16_s32(codes.v[2 * i]), second = vreinterpretq_s16_s32(codes.v[2 * i + 1]);
    sum.v[2 * i] = vmlal_lane_s16(sum.v[2 * i], vget_low_s16(first), pair, 0);
    sum.v[2 * i] = vmlal_lane_s16(sum.v[2 * i], vget_low_s16(second), pair, 1);
    sum.v[2 * i + 1] = vmlal_high_lane_s16(sum.v[2 * i + 1], first, pair, 0);
    sum.v[2 * i + 1] = vmlal_high_lane_s16(sum.v[2 * i + 1], second, pair, 1);
  }
  return sum;
}
INLINE vi vi_arranged(vi a) {
  vi r;
  for (int i = 0; i < 4; i += 2) {
    const int16x8_t low = vreinterpretq_s16_s32(a.v[i]), high = vreinterpretq_s16_s32(a.v[i + 1]);
    r.v[i] = vreinterpretq_s32_s16(vuzp1q_s16(low, high));
    r.v[i + 1] = vreinterpretq_s32_s16(vuzp2q_s16(low, high));
  }
  return r;
}
INLINE vi vi_lookup(vi a, const uint8_t table[16]) {
  const uint8x16_t t = vld1q_u8(table);
  const int32x4_t high = vdupq_n_s32((int32_t)0xff00ff00); /* an index beyond the table gives zero */
  EVERY(vi, vreinterpretq_s32_u8(vqtbl1q_u8(t, vreinterpretq_u8_s32(vorrq_s32(a.v[i], high)))));
}
#endif
INLINE void vi_narrow(int16_t* p, vi a) {
  for (int i = 0; i < 4; i++) vst1_s16(p + 4 * i, vmovn_s32(a.v[i]));
}
INLINE void transpose_half(const char* const rows[16], vi out[8]) {
  for (int quarter = 0; quarter < 2; quarter++)
    for (int r = 0; r < 16; r += 4) {
      int32x4_t w[4];
      for (int i = 0; i < 4; i++) w[i] = vld1q_s32((const int32_t*)rows[r + i] + 4 * quarter);
      const int32x4_t a = vtrn1q_s32(w[0], w[1]), b = vtrn2q_s32(w[0], w[1]), c = vtrn1q_s32(w[2], w[3]), d = vtrn2q_s32(w[2], w[3]);
#define HALVES(f, x, y) vreinterpretq_s32_s64(f(vreinterpretq_s64_s32(x), vreinterpretq_s64_s32(y)))
      out[4 * quarter].v[r / 4] = HALVES(vtrn1q_s64, a, c);
      out[4 * quarter + 1].v[r / 4] = HALVES(vtrn1q_s64, b, d);
      out[4 * quarter + 2].v[r / 4] = HALVES(vtrn2q_s64, a, c);
      out[4 * quarter + 3].v[r / 4] = HALVES(vtrn2q_s64, b, d);
    }
}

#else
#define EVERY(type, e) \
  type r;             \
  for (int i = 0; i < LANES; i++) r.v[i] = (e); \
  return r
typedef struct { int32_t v[LANES]; } vi;
INLINE vi vi_load(const void* p) {
  vi r;
  memcpy(&r, p, sizeof r);
  return r;
}
INLINE void vi_store(void* p, vi a) { memcpy(p, &a, sizeof a); }
INLINE vi vi_set(int32_t a) { EVERY(vi, a); }
INLINE vi vi_add(vi a, vi b) { EVERY(vi, a.v[i] + b.v[i]); }
INLINE vi vi_and(vi a, vi b) { EVERY(vi, a.v[i] & b.v[i]); }
INLINE vi vi_or(vi a, vi b) { EVERY(vi, a.v[i] | b.v[i]); }
INLINE vi vi_max(vi a, vi b) { EVERY(vi, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
INLINE vi vi_left(vi a, int by) { EVERY(vi, (int32_t)((uint32_t)a.v[i] << by)); }
INLINE vi vi_right(vi a, int by) { EVERY(vi, (int32_t)((uint32_t)a.v[i] >> by)); }
INLINE vf vi_float(vi a) { EVERY(vf, (float)a.v[i]); }
INLINE vi vi_nearest(vf a) { EVERY(vi, (int32_t)__builtin_rintf(a.v[i])); }
INLINE vf vi_as_float(vi a) {
  vf r;
  memcpy(&r, &a, sizeof r);
  return r;
}
INLINE vi vi_of_float(vf a) {
  vi r;
  memcpy(&r, &a, sizeof r);
  return r;
}
INLINE vi vi_dot(vi sum, vi codes, int32_t x) {
  EVERY(vi, sum.v[i] + (int16_t)codes.v[i] * (int16_t)x + (codes.v[i] >> 16) * (x >> 16));
}
INLINE vi vi_arranged(vi a) { return a; }
INLINE vi vi_lookup(vi a, const uint8_t table[16]) { EVERY(vi, table[a.v[i] & 15] | table[a.v[i] >> 16 & 15] << 16); }
INLINE void vi_narrow(int16_t* p, vi a) {
  for (int i = 0; i < LANES; i++) p[i] = (int16_t)a.v[i];
}
INLINE void transpose_half(const char* const rows[16], vi out[8]) {
  for (int r = 0; r < 16; r++)
    for (int i = 0; i < 8; i++) memcpy(&out[i].v[r], rows[r] + 4 * i, 4);
}
#endif

static __attribute__((noinline)) void transpose_last(const char* const rows[16], size_t at, int bytes, const char* end, vi out[8]) {
  char copies[16][32] = {{0}};
  const char* from[16];
  for (int r = 0; r < 16; r++) {
    from[r] = rows[r] + at;
    if (end - from[r] < 32) from[r] = memcpy(copies[r], from[r], (size_t)bytes);
  }
  transpose_half(from, out);
}

/* Loads go over a row's end into the next one, but never over that of the matrix. */
INLINE void transpose_some(const char* const rows[16], size_t at, int bytes, const char* end, vi out[8]) {
  if (end - rows[15] - (ptrdiff_t)at < 32) { /* no row lies behind the last one */
    transpose_last(rows, at, bytes, end, out);
    return;
  }
  const char* from[16];
  UNROLL for (int r = 0; r < 16; r++) from[r] = rows[r] + at;
  transpose_half(from, out);
}

INLINE void vi_transpose(const char* const rows[16], size_t at, int bytes, const char* end, vi out[16]) {
  transpose_some(rows, at, bytes < 32 ? bytes : 32, end, out);
  if (bytes > 32) transpose_some(rows, at + 32, bytes - 32, end, out + 8);
}
#endif

#if defined(__AVX512VNNI__)
INLINE int32_t vi_greatest(vi a) { return _mm512_reduce_max_epi32(a); }
INLINE int32_t vi_sum(vi a) { return _mm512_reduce_add_epi32(a); }
#else
INLINE int32_t vi_greatest(vi a) {
  int32_t t[LANES], greatest;
  vi_store(t, a);
  greatest = t[0];
  for (int i = 1; i < LANES; i++) greatest = t[i] > greatest ? t[i] : greatest;
  return greatest;
}
INLINE int32_t vi_sum(vi a) {
  int32_t t[LANES], sum = 0;
  vi_store(t, a);
  for (int i = 0; i < LANES; i++) sum += t[i];
  return sum;
}
#endif

#if MK_SDOT && !MK_USDOT
enum { SIGNED = 1 }; /* sdot takes codes for signed bytes */
INLINE vi vi_lowered(vi a) { EVERY(vi, veorq_s32(a.v[i], vdupq_n_s32((int32_t)0x80808080))); }
#else
enum { SIGNED = 0 };
INLINE vi vi_lowered(vi a) { return a; }
#endif
