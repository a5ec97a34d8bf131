#include "rows/activations_lanes.h"

/* One loop for each kind: the kind is a constant inside, so nothing is asked per number. */
#define EACH_ACT(loop)                        \
  switch (act) {                              \
    case MK_SILU: loop(MK_SILU); break;       \
    case MK_GELU: loop(MK_GELU); break;       \
    case MK_GELU_TANH: loop(MK_GELU_TANH); break; \
    case MK_RELU: loop(MK_RELU); break;       \
    case MK_RELU2: loop(MK_RELU2); break;     \
    case MK_SOFTPLUS: loop(MK_SOFTPLUS); break; \
    case MK_SIGMOID: loop(MK_SIGMOID); break; \
    default: loop(MK_TANH);                   \
  }

static void act(enum mk_act act, const float* x, float* y, int count) {
  const int whole = count / LANES * LANES, rest = count - whole;
#define LOOP(kind)                                                                        \
  for (int i = 0; i < whole; i += LANES) vf_store(y + i, vf_act(kind, vf_load(x + i))); \
  if (rest) vf_store_some(y + whole, vf_act(kind, vf_load_some(x + whole, rest)), rest)
  EACH_ACT(LOOP)
#undef LOOP
}

INLINE void gate_all(struct mk_gate kind, const float* gate, const float* up, float* y, int count) {
  const int whole = count / LANES * LANES, rest = count - whole;
  for (int i = 0; i < whole; i += LANES) vf_store(y + i, vf_gate(kind, vf_load(gate + i), vf_load(up + i)));
  if (rest) vf_store_some(y + whole, vf_gate(kind, vf_load_some(gate + whole, rest), vf_load_some(up + whole, rest)), rest);
}

static void gate(struct mk_gate kind, const float* gate, const float* up, float* y, int count) {
  if (kind.limit > 0) {
    gate_all(kind, gate, up, y, count);
    return;
  }
  const enum mk_act act = kind.act;
#define LOOP(known) gate_all((struct mk_gate){known, 0, 0}, gate, up, y, count)
  EACH_ACT(LOOP)
#undef LOOP
}

static void softcap(float cap, const float* x, float* y, int count) {
  const int whole = count / LANES * LANES, rest = count - whole;
  const vf most = vf_set(cap);
  for (int i = 0; i < whole; i += LANES) vf_store(y + i, vf_mul(vf_tanh(vf_div(vf_load(x + i), most)), most));
  if (rest) vf_store_some(y + whole, vf_mul(vf_tanh(vf_div(vf_load_some(x + whole, rest), most)), most), rest);
}

INLINE vf bent(struct mk_bend by, vf x) {
  const vf above = vf_mul(vf_mul(vf_set(by.rise), x), x);
  const vf below = vf_mul(vf_sub(vf_expm1(vf_min(vf_set(by.eps), x)), x), vf_set(by.fall));
  return vf_fma(vf_set(by.beta), x, vf_if_less(vf_set(0), x, above, below));
}

static void bend(struct mk_bend by, const float* x, float* y, int count) {
  const int whole = count / LANES * LANES, rest = count - whole;
  for (int i = 0; i < whole; i += LANES) vf_store(y + i, bent(by, vf_load(x + i)));
  if (rest) vf_store_some(y + whole, bent(by, vf_load_some(x + whole, rest)), rest);
}

const struct activations COLUMN(activations) = {act, gate, softcap, bend};
