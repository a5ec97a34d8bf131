/* MLX's rule (mlx/backend/cpu/quantized.cpp, MIT), which decides every bit of a package: the end of the range
 * that is farther from zero is hit exactly, and so is zero. All of it in float32; the quotient of an element is
 * a division, since a product with the reciprocal would round otherwise. */
#include "rows/quantize.h"
#include "simd/registers.h"

enum { MOST = 128 };

INLINE vf load(const void* x, enum mk_float type, int i) {
  if (type == MK_BF16) return vf_bf16((const uint16_t*)x + i);
  if (type == MK_F16) return vf_f16((const uint16_t*)x + i);
  return vf_load((const float*)x + i);
}

/* Sixteen whole numbers from 0 to 255 as bytes. */
INLINE void store_bytes(uint8_t* to, vf whole) {
#if defined(__AVX512F__)
  _mm_storeu_si128((__m128i*)to, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(whole)));
#elif defined(__AVX2__)
  const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(whole.a), _mm256_cvtps_epi32(whole.b)); /* by halves of registers */
  const __m256i apart = _mm256_permute4x64_epi64(words, 0xd8);
  _mm_storeu_si128((__m128i*)to, _mm_packus_epi16(_mm256_castsi256_si128(apart), _mm256_extracti128_si256(apart, 1)));
#else
  float t[LANES];
  vf_store(t, whole);
  for (int i = 0; i < LANES; i++) to[i] = (uint8_t)(int)t[i];
#endif
}

INLINE float least(vf a) { return -vf_greatest(vf_sub(vf_set(0), a)); }

/* The first of the numbers that are equal to this one: zeros have two signs, and MLX compares one by one. */
INLINE float first_like(float wanted, const void* x, enum mk_float type, int size) {
  for (int i = 0; i < size; i += LANES) {
    float t[LANES];
    vf_store(t, load(x, type, i));
    for (int k = 0; k < LANES; k++)
      if (t[k] == wanted) return t[k];
  }
  return wanted;
}

/* The first code in the lowest bits. */
INLINE void pack_bits(const uint8_t* from, uint8_t* to, int size, int bits) {
  if (bits == 8) {
    memcpy(to, from, (size_t)size);
  } else if (bits == 4) {
    for (int i = 0; i < size / 2; i++) to[i] = (uint8_t)(from[2 * i] | from[2 * i + 1] << 4);
  } else if (bits == 2) {
    for (int i = 0; i < size / 4; i++, from += 4) to[i] = (uint8_t)(from[0] | from[1] << 2 | from[2] << 4 | from[3] << 6);
  } else {
    for (int i = 0; i < size; i += 8, from += 8, to += bits) {
      uint64_t word = 0;
      for (int k = 0; k < 8; k++) word |= (uint64_t)from[k] << (k * bits);
      for (int k = 0; k < bits; k++) to[k] = (uint8_t)(word >> (8 * k));
    }
  }
}

/* yes ? a : b. No branch: weights would mislead it half of the time. */
INLINE float either(int yes, float a, float b) {
  uint32_t x, y;
  memcpy(&x, &a, 4);
  memcpy(&y, &b, 4);
  y ^= (x ^ y) & -(uint32_t)yes;
  memcpy(&b, &y, 4);
  return b;
}

static void group(const void* x, enum mk_float type, int size, int bits, uint8_t* codes, float* scale, float* bias) {
  vf high = load(x, type, 0), low = high;
  for (int i = LANES; i < size; i += LANES) {
    vf v = load(x, type, i);
    high = vf_max(high, v);
    low = vf_min(low, v);
  }
  const float most = (float)((1 << bits) - 1), top = vf_greatest(high), bottom = least(low);
  float step = (top - bottom) / most, zero = bits == 1 && bottom == 0 ? first_like(bottom, x, type, size) : bottom;
  step = step > 1e-7f ? step : 1e-7f;
  if (bits > 1) { /* two values are the ends of the range; more have zero among them */
    const int from_below = __builtin_fabsf(bottom) > __builtin_fabsf(top);
    step = either(from_below, step, -step);
    const float edge = either(from_below, bottom, top), at_edge = __builtin_rintf(edge / step);
    zero = 0;
    if (at_edge != 0) {
      step = edge / at_edge;
      zero = edge;
    }
  }
  uint8_t apart[MOST];
  for (int i = 0; i < size; i += LANES) {
    vf code = vf_round(vf_div(vf_sub(load(x, type, i), vf_set(zero)), vf_set(step)));
    store_bytes(apart + i, vf_min(vf_max(code, vf_set(0)), vf_set(most)));
  }
  pack_bits(apart, codes, size, bits);
  *scale = step;
  *bias = zero;
}

const struct quantize COLUMN(quantize) = {group};
