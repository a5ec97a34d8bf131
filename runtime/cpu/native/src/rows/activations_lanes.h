/* The activations in lanes, for whoever has numbers in registers: a product that ends in one, too. */
#pragma once
#include "rows/activations.h"
#include "simd/functions.h"

INLINE vf vf_act(enum mk_act act, vf x) {
  const vf zero = vf_set(0), half = vf_set(0.5f), one = vf_set(1);
  switch (act) {
    case MK_SILU: return vf_mul(x, vf_sigmoid(x));
    case MK_GELU: return vf_mul(vf_mul(x, half), vf_add(one, vf_erf(vf_mul(x, vf_set(0.70710678f)))));
    case MK_GELU_TANH: { /* (1 + tanh z) / 2 is sigmoid(2 z) */
      const vf twice = vf_fma(vf_mul(x, x), vf_set(0.07135481f), vf_set(1.59576912f));
      return vf_mul(x, vf_sigmoid(vf_mul(x, twice)));
    }
    case MK_RELU: return vf_max(zero, x);
    case MK_RELU2: {
      const vf y = vf_max(zero, x);
      return vf_mul(y, y);
    }
    case MK_SOFTPLUS: return vf_softplus(x);
    case MK_SIGMOID: return vf_sigmoid(x);
    default: return vf_tanh(x);
  }
}

INLINE vf vf_gate(struct mk_gate kind, vf gate, vf up) {
  if (!(kind.limit > 0)) return vf_mul(vf_act(kind.act, gate), up);
  const vf most = vf_set(kind.limit);
  gate = vf_min(most, gate);
  up = vf_max(vf_set(-kind.limit), vf_min(most, up));
  return vf_mul(vf_add(up, vf_set(1)), vf_mul(gate, vf_sigmoid(vf_mul(gate, vf_set(kind.slope)))));
}
