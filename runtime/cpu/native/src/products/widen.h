/* Sixteen weights of a row as floats, of any format.
 *
 * Packed ones are code * scale + bias in float32, two roundings, scales widened: the number that MLX's dequantize
 * gives with float32 scales. Whatever multiplies by weights in float32, or looks up rows, sees these numbers.
 */
#pragma once
#include "products/blocks.h"
#include "products/products.h"
#include "simd/registers.h"

INLINE float float_with(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

INLINE float one_float(const void* p, int type, size_t i) {
  if (type == MK_F32) return ((const float*)p)[i];
  if (type == MK_BF16) return float_with((uint32_t)((const uint16_t*)p)[i] << 16);
#if defined(__F16C__)
  return _cvtsh_ss(((const uint16_t*)p)[i]);
#else
  uint16_t same[LANES];
  float lanes[LANES];
  for (int l = 0; l < LANES; l++) same[l] = ((const uint16_t*)p)[i];
  vf_store(lanes, vf_f16(same));
  return lanes[0];
#endif
}

/* A byte of 1 sign, 4 exponent and 3 mantissa bits: 0x7f is no number, and nothing is infinite. */
INLINE float e4m3(uint8_t c) {
  if ((c & 0x7f) == 0x7f) return __builtin_nanf("");
  const float size = float_with((uint32_t)(c & 0x7f) << 20) * 0x1p120f; /* subnormals included */
  return c & 0x80 ? -size : size;
}

/* A power of two; 0 stands for 2^-127. */
INLINE float e8m0(uint8_t c) { return float_with(c ? (uint32_t)c << 23 : 1u << 22); }

static const float FP4_VALUES[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};

/* at: a multiple of 16, so that codes of any width begin with a byte. */
INLINE void codes16(const uint8_t* row, int at, const int bits, int* codes) {
  const uint8_t* p = row + (size_t)at / 8 * bits;
  for (int half = 0; half < 2; half++, p += bits) {
    uint64_t word = 0;
    memcpy(&word, p, (size_t)bits);
    for (int i = 0; i < 8; i++) codes[8 * half + i] = (int)(word >> i * bits & ((1u << bits) - 1));
  }
}

/* The same codes as floats. */
INLINE vf code_floats16(const uint8_t* row, int at, const int bits) {
  const uint8_t* from = row + (size_t)at / 8 * bits;
  if (bits == 8) return vf_bytes(from);
  if (bits == 4) return vf_nibbles(from);
  int codes[LANES];
  float values[LANES];
  codes16(row, at, bits, codes);
  for (int i = 0; i < LANES; i++) values[i] = (float)codes[i];
  return vf_load(values);
}

INLINE vf packed16(const struct mk_matrix* w, int64_t r, int at, const int bits) {
  const size_t g = (size_t)r * (size_t)((w->across ? w->n : w->k) / w->group) + (size_t)(at / w->group);
  if (w->kind == MK_AFFINE) {
    const vf codes = code_floats16((const uint8_t*)w->codes + r * w->stride, at, bits);
    return vf_add(vf_mul(codes, vf_set(one_float(w->scales, w->type, g))), vf_set(one_float(w->biases, w->type, g)));
  }
  int codes[LANES];
  float values[LANES];
  codes16((const uint8_t*)w->codes + r * w->stride, at, bits, codes);
  const uint8_t s = ((const uint8_t*)w->scales)[g];
  for (int i = 0; i < LANES; i++) values[i] = bits == 8 ? e4m3((uint8_t)codes[i]) : FP4_VALUES[codes[i]];
  return vf_mul(vf_load(values), vf_set(w->kind == MK_NVFP4 ? e4m3(s) : e8m0(s)));
}

/* Sixteen numbers of a row of blocks, which share a scale: scale * (code - zero) in one rounding, or scale * code - minimum
 * in two, as ggml computes them. */
static vf blocks16(const struct mk_matrix* w, int64_t r, int at) {
  const struct mk_blocks is = mk_blocks_of(w->kind);
  const uint8_t* block = (const uint8_t*)w->codes + r * w->stride + (int64_t)(at / is.weights) * is.bytes;
  const int first = at % is.weights, g = first / is.group;
  float values[LANES];
  for (int i = 0; i < LANES; i++) values[i] = (float)(mk_block_code(w->kind, block, first + i) - is.zero);
  const struct mk_small small = mk_block_scale(w->kind, block, g);
  uint16_t half; /* blocks may begin anywhere */
  memcpy(&half, block + small.at, 2);
  const vf scaled = vf_mul(vf_load(values), vf_set(one_float(&half, MK_F16, 0) * (float)small.scale));
  if (small.low_at < 0) return scaled;
  memcpy(&half, block + small.low_at, 2);
  return vf_add(scaled, vf_set(-(one_float(&half, MK_F16, 0) * (float)small.low)));
}

INLINE vf floats16(const char* p, int type) {
  return type == MK_F32 ? vf_load((const float*)p) : type == MK_BF16 ? vf_bf16((const uint16_t*)p) : vf_f16((const uint16_t*)p);
}

/* Weights [at, at + count) of row r, zeros behind them; count <= 16. Groups are multiples of 16, so packed rows always
 * have sixteen. */
INLINE vf widen(const struct mk_matrix* w, int64_t r, int at, int count) {
  if (w->kind == MK_FLOATS) {
    const size_t size = w->type == MK_F32 ? 4 : 2;
    const char* p = (const char*)w->codes + r * w->stride + (size_t)at * size;
    char part[LANES * 4] = {0};
    return floats16(count == LANES ? p : memcpy(part, p, (size_t)count * size), w->type);
  }
  if (mk_is_blocks(w)) return blocks16(w, r, at);
  switch (w->bits) {
    case 1: return packed16(w, r, at, 1);
    case 2: return packed16(w, r, at, 2);
    case 3: return packed16(w, r, at, 3);
    case 4: return packed16(w, r, at, 4);
    case 5: return packed16(w, r, at, 5);
    case 6: return packed16(w, r, at, 6);
    default: return packed16(w, r, at, 8);
  }
}
