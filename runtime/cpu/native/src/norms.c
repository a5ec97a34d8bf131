#include "norms.h"
#include "simd.h"

static void rms(const float* x, const float* weight, float* y, int width, float eps) {
  const int whole = width / LANES * LANES, rest = width - whole;
  vf sum = vf_set(0);
  for (int i = 0; i < whole; i += LANES) {
    vf v = vf_load(x + i);
    sum = vf_fma(v, v, sum);
  }
  if (rest) {
    vf v = vf_load_some(x + whole, rest);
    sum = vf_fma(v, v, sum);
  }
  const vf factor = vf_set(1.f / __builtin_sqrtf(vf_sum(sum) / (float)width + eps));
  for (int i = 0; i < whole; i += LANES) {
    vf v = vf_mul(vf_load(x + i), factor);
    vf_store(y + i, weight ? vf_mul(v, vf_load(weight + i)) : v);
  }
  if (rest) {
    vf v = vf_mul(vf_load_some(x + whole, rest), factor);
    vf_store_some(y + whole, weight ? vf_mul(v, vf_load_some(weight + whole, rest)) : v, rest);
  }
}

const struct norms COLUMN(norms) = {rms};
