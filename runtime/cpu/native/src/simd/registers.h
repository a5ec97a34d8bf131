/* Sixteen float lanes, whatever the machine: one register of 512 bits, two of 256, four of 128, or an array. Each
 * lane is computed alike everywhere, and so is the order in which vf_sum adds them. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Functions and loops that are one piece of code for speed. Where lanes are loops, or a sanitizer puts a check before every access
 * (MK_NO_INLINE), such a piece takes minutes to compile. */
#if defined(MK_NO_SIMD) || defined(MK_NO_INLINE)
#define INLINE static inline __attribute__((unused))
#define UNROLL
#else
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define LANES 16

#if defined(__AVX512F__)
#include <immintrin.h>
typedef __m512 vf;
INLINE vf vf_load(const float* p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float* p, vf a) { _mm512_storeu_ps(p, a); }
INLINE vf vf_set(float a) { return _mm512_set1_ps(a); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
INLINE vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf vf_ldexp(vf a, vf n) { /* a * 2^n, n whole and within [-126, 127] */
  __m512i e = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
  return _mm512_mul_ps(a, _mm512_castsi512_ps(e));
}
INLINE vf vf_bf16(const uint16_t* p) { /* to the upper halves of lanes, in one operation */
  const __m512i at = _mm512_set_epi32(0xf0000, 0xe0000, 0xd0000, 0xc0000, 0xb0000, 0xa0000, 0x90000, 0x80000, 0x70000, 0x60000, 0x50000,
                                      0x40000, 0x30000, 0x20000, 0x10000, 0);
  const __m512i all = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i*)p));
  return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, at, all));
}
INLINE vf vf_f16(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
INLINE vf vf_if_less(vf a, vf b, vf yes, vf no) { /* a < b ? yes : no, lane by lane */
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}

#elif defined(__AVX2__)
#include <immintrin.h>
typedef struct { __m256 a, b; } vf;
#define TWO(x, y) ((vf){(x), (y)})
INLINE vf vf_load(const float* p) { return TWO(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
INLINE void vf_store(float* p, vf a) { _mm256_storeu_ps(p, a.a), _mm256_storeu_ps(p + 8, a.b); }
INLINE vf vf_set(float a) { return TWO(_mm256_set1_ps(a), _mm256_set1_ps(a)); }
INLINE vf vf_add(vf a, vf b) { return TWO(_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b)); }
INLINE vf vf_sub(vf a, vf b) { return TWO(_mm256_sub_ps(a.a, b.a), _mm256_sub_ps(a.b, b.b)); }
INLINE vf vf_mul(vf a, vf b) { return TWO(_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b)); }
INLINE vf vf_div(vf a, vf b) { return TWO(_mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b)); }
INLINE vf vf_max(vf a, vf b) { return TWO(_mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b)); }
INLINE vf vf_min(vf a, vf b) { return TWO(_mm256_min_ps(a.a, b.a), _mm256_min_ps(a.b, b.b)); }
INLINE vf vf_abs(vf a) {
  const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return TWO(_mm256_and_ps(a.a, m), _mm256_and_ps(a.b, m));
}
INLINE vf vf_sqrt(vf a) { return TWO(_mm256_sqrt_ps(a.a), _mm256_sqrt_ps(a.b)); }
INLINE vf vf_fma(vf a, vf b, vf c) { return TWO(_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)); }
INLINE vf vf_round(vf a) { return TWO(_mm256_round_ps(a.a, 8), _mm256_round_ps(a.b, 8)); }
INLINE __m256 ldexp8(__m256 a, __m256 n) {
  __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(a, _mm256_castsi256_ps(e));
}
INLINE vf vf_ldexp(vf a, vf n) { return TWO(ldexp8(a.a, n.a), ldexp8(a.b, n.b)); }
INLINE __m256 bf16_8(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}
INLINE vf vf_bf16(const uint16_t* p) { return TWO(bf16_8(p), bf16_8(p + 8)); }
INLINE vf vf_f16(const uint16_t* p) {
  return TWO(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8))));
}
INLINE vf vf_if_less(vf a, vf b, vf yes, vf no) {
  return TWO(_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
             _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ)));
}

#elif defined(__aarch64__) && !defined(MK_NO_SIMD)
#include <arm_neon.h>
typedef struct { float32x4_t v[4]; } vf;
#define EACH(e) \
  vf r;         \
  for (int i = 0; i < 4; i++) r.v[i] = (e); \
  return r
INLINE vf vf_load(const float* p) { EACH(vld1q_f32(p + 4 * i)); }
INLINE void vf_store(float* p, vf a) {
  for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, a.v[i]);
}
INLINE vf vf_set(float a) { EACH(vdupq_n_f32(a)); }
INLINE vf vf_add(vf a, vf b) { EACH(vaddq_f32(a.v[i], b.v[i])); }
INLINE vf vf_sub(vf a, vf b) { EACH(vsubq_f32(a.v[i], b.v[i])); }
INLINE vf vf_mul(vf a, vf b) { EACH(vmulq_f32(a.v[i], b.v[i])); }
INLINE vf vf_div(vf a, vf b) { EACH(vdivq_f32(a.v[i], b.v[i])); }
/* As x86 has them: the second where either is NaN. */
INLINE vf vf_max(vf a, vf b) { EACH(vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i])); }
INLINE vf vf_min(vf a, vf b) { EACH(vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i])); }
INLINE vf vf_abs(vf a) { EACH(vabsq_f32(a.v[i])); }
INLINE vf vf_sqrt(vf a) { EACH(vsqrtq_f32(a.v[i])); }
INLINE vf vf_fma(vf a, vf b, vf c) { EACH(vfmaq_f32(c.v[i], a.v[i], b.v[i])); }
INLINE vf vf_round(vf a) { EACH(vrndnq_f32(a.v[i])); }
INLINE vf vf_ldexp(vf a, vf n) {
  EACH(vmulq_f32(a.v[i], vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n.v[i]), vdupq_n_s32(127)), 23))));
}
INLINE vf vf_bf16(const uint16_t* p) { EACH(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16))); }
INLINE vf vf_f16(const uint16_t* p) { EACH(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)))); }
INLINE vf vf_if_less(vf a, vf b, vf yes, vf no) { EACH(vbslq_f32(vcltq_f32(a.v[i], b.v[i]), yes.v[i], no.v[i])); }

#else
typedef struct { float v[LANES]; } vf;
#define EACH(e) \
  vf r;         \
  for (int i = 0; i < LANES; i++) r.v[i] = (e); \
  return r
INLINE float float_of_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
INLINE float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest >= 0x7c00) return float_of_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  float magnitude = float_of_bits(rest << 13) * 0x1p112f; /* subnormals included */
  return float_of_bits(sign | *(uint32_t*)memcpy(&(uint32_t){0}, &magnitude, 4));
}
INLINE vf vf_load(const float* p) { EACH(p[i]); }
INLINE void vf_store(float* p, vf a) { memcpy(p, a.v, sizeof a.v); }
INLINE vf vf_set(float a) { EACH(a); }
INLINE vf vf_add(vf a, vf b) { EACH(a.v[i] + b.v[i]); }
INLINE vf vf_sub(vf a, vf b) { EACH(a.v[i] - b.v[i]); }
INLINE vf vf_mul(vf a, vf b) { EACH(a.v[i] * b.v[i]); }
INLINE vf vf_div(vf a, vf b) { EACH(a.v[i] / b.v[i]); }
INLINE vf vf_max(vf a, vf b) { EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
INLINE vf vf_min(vf a, vf b) { EACH(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
INLINE vf vf_abs(vf a) { EACH(__builtin_fabsf(a.v[i])); }
INLINE vf vf_sqrt(vf a) { EACH(__builtin_sqrtf(a.v[i])); }
INLINE vf vf_fma(vf a, vf b, vf c) { EACH(__builtin_fmaf(a.v[i], b.v[i], c.v[i])); } /* exact by IEEE 754, libm's too */
INLINE vf vf_round(vf a) { EACH(__builtin_rintf(a.v[i])); }
INLINE vf vf_ldexp(vf a, vf n) { EACH(a.v[i] * float_of_bits((uint32_t)((int)n.v[i] + 127) << 23)); }
INLINE vf vf_bf16(const uint16_t* p) { EACH(float_of_bits((uint32_t)p[i] << 16)); }
INLINE vf vf_f16(const uint16_t* p) { EACH(half_to_float(p[i])); }
INLINE vf vf_if_less(vf a, vf b, vf yes, vf no) { EACH(a.v[i] < b.v[i] ? yes.v[i] : no.v[i]); }
#endif

/* Lane 8 to lane 0, 9 to 1 and so on; then by fours, twos and ones. */
INLINE float vf_sum(vf a) {
  float t[LANES];
  vf_store(t, a);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++) t[i] += t[i + half];
  return t[0];
}
#if defined(__AVX512F__)
INLINE float vf_greatest(vf a) { /* the same tree, lane 0 all the way down */
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
#else
INLINE float vf_greatest(vf a) {
  float t[LANES];
  vf_store(t, a);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++) t[i] = t[i] > t[i + half] ? t[i] : t[i + half];
  return t[0];
}
#endif

/* The first n < 16 floats, zeros behind them; and back. */
INLINE vf vf_load_some(const float* p, int n) {
  float t[LANES] = {0};
  memcpy(t, p, (size_t)n * 4);
  return vf_load(t);
}
INLINE void vf_store_some(float* p, vf a, int n) {
  float t[LANES];
  vf_store(t, a);
  memcpy(p, t, (size_t)n * 4);
}

/* Sixteen bytes as numbers; and sixteen halves of eight bytes, the lower one first. */
#if defined(__AVX2__)
INLINE vf numbers_of(__m128i bytes) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
#else
  return TWO(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))));
#endif
}
INLINE vf vf_bytes(const uint8_t* p) { return numbers_of(_mm_loadu_si128((const __m128i*)p)); }
INLINE vf vf_nibbles(const uint8_t* p) {
  const __m128i pairs = _mm_loadl_epi64((const __m128i*)p), low = _mm_set1_epi8(15);
  return numbers_of(_mm_unpacklo_epi8(_mm_and_si128(pairs, low), _mm_and_si128(_mm_srli_epi16(pairs, 4), low)));
}
#else
INLINE vf vf_bytes(const uint8_t* p) {
  float t[LANES];
  for (int i = 0; i < LANES; i++) t[i] = p[i];
  return vf_load(t);
}
INLINE vf vf_nibbles(const uint8_t* p) {
  float t[LANES];
  for (int i = 0; i < LANES; i++) t[i] = p[i / 2] >> (i % 2 * 4) & 15;
  return vf_load(t);
}
#endif

/* e^x to 1e-7 relative (Cephes' polynomial); 0 below -87.3, the greatest finite powers at 88; of NaN, NaN. */
INLINE vf vf_exp(vf x) {
  const vf low = vf_set(-87.3f);
  vf y = vf_min(vf_set(88.f), vf_max(low, x)); /* the second where either is NaN */
  vf n = vf_round(vf_mul(y, vf_set(1.44269504f)));
  vf r = vf_fma(n, vf_set(2.12194440e-4f), vf_fma(n, vf_set(-0.693359375f), y));
  vf p = vf_set(1.9875691500e-4f);
  p = vf_fma(p, r, vf_set(1.3981999507e-3f));
  p = vf_fma(p, r, vf_set(8.3334519073e-3f));
  p = vf_fma(p, r, vf_set(4.1665795894e-2f));
  p = vf_fma(p, r, vf_set(1.6666665459e-1f));
  p = vf_fma(p, r, vf_set(5.0000001201e-1f));
  vf e = vf_ldexp(vf_fma(vf_mul(r, r), p, vf_add(r, vf_set(1.f))), n);
  return vf_if_less(x, low, vf_set(0), e);
}
