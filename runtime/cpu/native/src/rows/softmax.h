/* Softmax along rows of `width` floats, and where the greatest of them is. */
#pragma once
#include "simd/columns.h"
#include <stddef.h>
#include <stdint.h>

struct softmax {
  /* y = e^(x - max x), over its sum. */
  void (*row)(const float* x, float* y, int width);
  /* log of the sum of e^x */
  float (*log_sum)(const float* x, int width);
  /* The first place of the greatest; what is no number is none, and 0 where the first is none. */
  int (*likeliest)(const float* x, int width);
};
DECLARE_COLUMNS(softmax, softmax);

#ifdef __cplusplus
extern "C" {
#endif
void mk_softmax(const float* x, ptrdiff_t stride, float* y, int rows, int width);
void mk_log_sum_exp(const float* x, ptrdiff_t stride, float* y, int rows, int width); /* one y a row */
void mk_likeliest(const float* x, ptrdiff_t stride, int32_t* y, int rows, int width);        /* likewise */
#ifdef __cplusplus
}
#endif
