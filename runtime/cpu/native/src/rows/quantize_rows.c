/* Quantization of many groups, by the calling thread alone: whoever writes a package has one for every core. */
#include "rows/quantize.h"
#include <string.h>

static const struct quantize* const columns[] = ALL_COLUMNS(quantize);

static size_t bytes_of(enum mk_float type) { return type == MK_F32 ? 4 : 2; }

static uint16_t to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16) | 0x40; /* not a number, and stays none */
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);                /* to nearest, ties to even */
}

static uint16_t to_f16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  const uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
  u &= 0x7fffffff;
  if (u > 0x7f800000) return sign | 0x7d00; /* not a number */
  if (u >= 0x477ff000) return sign | 0x7c00; /* rounds to more than 65504 */
  if (u < 0x38800000) {                      /* subnormal: the addition rounds where its last bit stands */
    float magnitude;
    memcpy(&magnitude, &u, 4);
    magnitude += 0.5f;
    memcpy(&u, &magnitude, 4);
    return sign | (uint16_t)(u - 0x3f000000);
  }
  u += 0xfff + (u >> 13 & 1);
  return sign | (uint16_t)((u - 0x38000000) >> 13);
}

static void put(char* to, enum mk_float type, size_t at, float value) {
  if (type == MK_F32) {
    memcpy(to + 4 * at, &value, 4);
  } else {
    const uint16_t half = type == MK_BF16 ? to_bf16(value) : to_f16(value);
    memcpy(to + 2 * at, &half, 2);
  }
}

void mk_quantize(const void* x, enum mk_float type, size_t groups, int size, int bits, void* codes, void* scales, void* biases) {
  const struct quantize* column = columns[mk_column()];
  const size_t bytes = size * bytes_of(type), code_bytes = (size_t)size * bits / 8;
  for (size_t g = 0; g < groups; g++) {
    float scale, bias;
    column->group((const char*)x + g * bytes, type, size, bits, (uint8_t*)codes + g * code_bytes, &scale, &bias);
    put(scales, type, g, scale);
    put(biases, type, g, bias);
  }
}
