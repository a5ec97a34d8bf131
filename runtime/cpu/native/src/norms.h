/* Norms along rows of `width` floats. */
#pragma once
#include "columns.h"
#include <stddef.h>

struct norms {
  /* y = x / sqrt(mean(x^2) + eps) * weight; weight NULL: without. One row. */
  void (*rms)(const float* x, const float* weight, float* y, int width, float eps);
};
DECLARE_COLUMNS(norms, norms);

#ifdef __cplusplus
extern "C" {
#endif
void mk_rms_norm(const float* x, const float* weight, float* y, int rows, int width, float eps);
#ifdef __cplusplus
}
#endif
