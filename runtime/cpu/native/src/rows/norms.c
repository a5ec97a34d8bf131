#include "rows/norms.h"
#include "simd/rest.h"

/* 1 / sqrt(mean(x^2) + eps) */
INLINE float rms_factor(const float* x, int width, float eps) {
  vf sum = vf_set(0);
  FOR_LANES(i, n, width) {
    const vf v = load(x + i, n);
    sum = vf_fma(v, v, sum);
  }
  return 1.f / __builtin_sqrtf(vf_sum(sum) / (float)width + eps);
}

static void rms(const float* x, const float* weight, const float* add, float* y, int width, float eps) {
  const vf factor = vf_set(rms_factor(x, width, eps));
  FOR_LANES(i, n, width) {
    vf v = vf_mul(load(x + i, n), factor);
    if (weight) v = vf_mul(v, load(weight + i, n));
    if (add) v = vf_add(load(add + i, n), v);
    store(y + i, v, n);
  }
}

INLINE vf mean_of(const float* x, int width) {
  vf sum = vf_set(0);
  FOR_LANES(i, n, width) sum = vf_add(sum, load(x + i, n));
  return vf_set(vf_sum(sum) / (float)width);
}

INLINE float variance(const float* x, int width, vf mean) {
  vf squares = vf_set(0);
  FOR_LANES(i, n, width) {
    vf v = vf_sub(load(x + i, n), mean);
    if (n < LANES) { /* where there is nothing, nothing is far from the mean */
      float kept[LANES] = {0};
      vf_store_some(kept, v, n);
      v = vf_load(kept);
    }
    squares = vf_fma(v, v, squares);
  }
  return vf_sum(squares) / (float)width;
}

static void layer(const float* x, const float* weight, const float* bias, float* y, int width, float eps) {
  const vf mean = mean_of(x, width);
  const vf factor = vf_set(1.f / __builtin_sqrtf(variance(x, width, mean) + eps));
  FOR_LANES(i, n, width) {
    vf v = vf_mul(vf_sub(load(x + i, n), mean), factor);
    if (weight) v = vf_mul(v, load(weight + i, n));
    if (bias) v = vf_add(v, load(bias + i, n));
    store(y + i, v, n);
  }
}

static void cut(const float* x, float* y, int width, float times) {
  const vf mean = mean_of(x, width);
  const vf least = vf_add(mean, vf_set(__builtin_sqrtf(variance(x, width, mean)) * times));
  FOR_LANES(i, n, width) store(y + i, vf_max(vf_set(0), vf_sub(load(x + i, n), least)), n);
}

const struct norms COLUMN(norms) = {rms, layer, cut};
