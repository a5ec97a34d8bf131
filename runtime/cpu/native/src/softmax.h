/* Softmax along rows of `width` floats. */
#pragma once
#include "columns.h"
#include <stddef.h>

struct softmax {
  /* y = e^(x - max x), over its sum. */
  void (*row)(const float* x, float* y, int width);
  /* log of the sum of e^x */
  float (*log_sum)(const float* x, int width);
};
DECLARE_COLUMNS(softmax, softmax);

#ifdef __cplusplus
extern "C" {
#endif
void mk_softmax(const float* x, ptrdiff_t stride, float* y, int rows, int width);
void mk_log_sum_exp(const float* x, ptrdiff_t stride, float* y, int rows, int width); /* one y a row */
#ifdef __cplusplus
}
#endif
