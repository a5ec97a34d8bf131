/* Several residual streams of `width` floats side by side (AltUp, arXiv 2301.13310): how they are made of each other. */
#pragma once
#include "simd/columns.h"
#include <stddef.h>

enum { MK_MOST_STREAMS = 64 };

/* One row each; y may be x. */
struct streams {
  /* y_s = x_s + sum over t of by[s, t] x_t */
  void (*mix)(const float* x, const float* by, float* y, int count, int width);
  /* y_s = x_s + (1 + by[s]) (answer - x_place) */
  void (*correct)(const float* x, const float* answer, const float* by, float* y, int count, int width, int place);
  /* y_s = x_s + answer, but y_0 = x_0 */
  void (*join)(const float* x, const float* answer, float* y, int count, int width);
};
DECLARE_COLUMNS(streams, streams);

#ifdef __cplusplus
extern "C" {
#endif
/* Strides: floats from one row to the next. */
void mk_mix_streams(const float* x, ptrdiff_t stride, const float* by, ptrdiff_t by_stride, float* y, ptrdiff_t y_stride, int rows,
                    int count, int width);
void mk_correct_streams(const float* x, ptrdiff_t stride, const float* answer, ptrdiff_t answer_stride, const float* by,
                        ptrdiff_t by_stride, float* y, ptrdiff_t y_stride, int rows, int count, int width, int place);
void mk_join_streams(const float* x, ptrdiff_t stride, const float* answer, ptrdiff_t answer_stride, float* y, ptrdiff_t y_stride,
                     int rows, int count, int width);
#ifdef __cplusplus
}
#endif
