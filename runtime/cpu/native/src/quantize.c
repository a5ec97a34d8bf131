/* MLX's rule (mlx/backend/cpu/quantized.cpp, MIT), which decides every bit of a package: the end of the range
 * that is farther from zero is hit exactly, and so is zero. All of it in float32; the quotient of an element is
 * a division, since a product with the reciprocal would round otherwise. */
#include "quantize.h"
#include "simd.h"

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
#else
  float t[LANES];
  vf_store(t, whole);
  for (int i = 0; i < LANES; i++) to[i] = (uint8_t)(int)t[i];
#endif
}

INLINE float least(vf a) {
  float t[LANES];
  vf_store(t, a);
  for (int i = 1; i < LANES; i++) t[0] = t[i] < t[0] ? t[i] : t[0];
  return t[0];
}

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
    step = from_below ? step : -step;
    const float edge = from_below ? bottom : top, at_edge = __builtin_rintf(edge / step);
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
