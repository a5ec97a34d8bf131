/* Affine quantization of rows, with the bits of MLX's own quantizer. */
#pragma once
#include "simd/columns.h"
#include <stddef.h>
#include <stdint.h>

enum mk_float { MK_F32, MK_F16, MK_BF16 };

struct quantize {
  /* One group of 32, 64 or 128 numbers: their codes of 1, 2, 3, 4, 5, 6 or 8 bits, packed, and scale and bias. */
  void (*group)(const void* x, enum mk_float type, int size, int bits, uint8_t* codes, float* scale, float* bias);
};
DECLARE_COLUMNS(quantize, quantize);

#ifdef __cplusplus
extern "C" {
#endif
/* groups of `size` numbers one behind the other; scales and biases get the numbers' own type. */
void mk_quantize(const void* x, enum mk_float type, size_t groups, int size, int bits, void* codes, void* scales, void* biases);
#ifdef __cplusplus
}
#endif
