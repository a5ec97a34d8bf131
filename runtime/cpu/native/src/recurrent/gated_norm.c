/* Norms under a gate, as recurrent layers end with. */
#include "recurrent/scans_lanes.h"

INLINE vf opened(const struct mk_gated_norm* j, vf gate) { return j->sigmoid ? vf_sigmoid(gate) : vf_silu(gate); }

static void token(const struct mk_gated_norm* j, int row, int token) {
  const int size = j->width / j->groups;
  for (int g = 0; g < j->groups; g++) {
    const float *x = token_at(j->x, row, token) + g * size, *gate = token_at(j->gate, row, token) + g * size;
    const float* weight = j->shared ? j->weight : j->weight + g * size;
    float* y = j->y + ((ptrdiff_t)row * j->tokens + token) * j->width + g * size;
    vf sum = vf_set(0);
    for (int c = 0; c < size; c += LANES) {
      const int n = lesser(size - c, LANES);
      vf v = take(x + c, n);
      if (j->gate_first) v = vf_mul(v, opened(j, take(gate + c, n)));
      sum = vf_fma(v, v, sum);
      put(y + c, v, n);
    }
    const vf factor = vf_set(1.f / __builtin_sqrtf(vf_sum(sum) / (float)size + j->eps));
    for (int c = 0; c < size; c += LANES) {
      const int n = lesser(size - c, LANES);
      vf v = vf_mul(vf_mul(take(y + c, n), factor), take(weight + c, n));
      if (!j->gate_first) v = vf_mul(v, opened(j, take(gate + c, n)));
      put(y + c, v, n);
    }
  }
}

const struct gated_norm COLUMN(gated_norm) = {token};
