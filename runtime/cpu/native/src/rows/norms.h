/* Norms along rows of `width` floats. What is NULL is left out. */
#pragma once
#include "simd/columns.h"
#include <stddef.h>

struct norms {
  /* y = add + x / sqrt(mean(x^2) + eps) * weight. One row. */
  void (*rms)(const float* x, const float* weight, const float* add, float* y, int width, float eps);
  /* y = (x - mean) / sqrt(variance + eps) * weight + bias. One row. */
  void (*layer)(const float* x, const float* weight, const float* bias, float* y, int width, float eps);
  /* y = max(0, x - (mean + times * deviation)): what is left of the greatest. One row; y may be x. */
  void (*cut)(const float* x, float* y, int width, float times);
};
DECLARE_COLUMNS(norms, norms);

#ifdef __cplusplus
extern "C" {
#endif
/* Strides: floats from one row to the next. y is dense. */
void mk_rms_norm(const float* x, ptrdiff_t stride, const float* weight, const float* add, ptrdiff_t add_stride, float* y,
                 int rows, int width, float eps);
void mk_layer_norm(const float* x, ptrdiff_t stride, const float* weight, const float* bias, float* y, int rows, int width,
                   float eps);
void mk_cut_rows(const float* x, ptrdiff_t stride, float* y, ptrdiff_t y_stride, int rows, int width, float times);
#ifdef __cplusplus
}
#endif
