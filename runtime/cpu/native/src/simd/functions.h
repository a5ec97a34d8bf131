/* Functions of sixteen floats at once. What is NaN comes out as NaN. */
#pragma once
#include "simd/registers.h"

INLINE vf vf_sigmoid(vf x) { return vf_div(vf_set(1), vf_add(vf_set(1), vf_exp(vf_sub(vf_set(0), x)))); }

/* e^x - 1 for x of at most 0, to 2e-7 relative: the series near 0, where e^x less 1 would lose its digits. */
INLINE vf vf_expm1(vf x) {
  vf p = vf_set(1.f / 40320);
  p = vf_fma(p, x, vf_set(1.f / 5040));
  p = vf_fma(p, x, vf_set(1.f / 720));
  p = vf_fma(p, x, vf_set(1.f / 120));
  p = vf_fma(p, x, vf_set(1.f / 24));
  p = vf_fma(p, x, vf_set(1.f / 6));
  p = vf_fma(p, x, vf_set(0.5f));
  const vf near = vf_fma(vf_mul(p, x), x, x);
  return vf_if_less(vf_abs(x), vf_set(0.5f), near, vf_sub(vf_exp(x), vf_set(1)));
}

/* To 2e-7 relative: Cephes' polynomial near 0, where 1 - 2 / (e^2x + 1) would lose its digits. */
INLINE vf vf_tanh(vf x) {
  const vf size = vf_abs(x), z = vf_mul(x, x);
  vf p = vf_set(-5.70498872745e-3f);
  p = vf_fma(p, z, vf_set(2.06390887954e-2f));
  p = vf_fma(p, z, vf_set(-5.37397155531e-2f));
  p = vf_fma(p, z, vf_set(1.33314422036e-1f));
  p = vf_fma(p, z, vf_set(-3.33332819422e-1f));
  const vf near = vf_fma(vf_mul(p, z), x, x);
  const vf power = vf_exp(vf_add(size, size));
  const vf far = vf_sub(vf_set(1), vf_div(vf_set(2), vf_add(power, vf_set(1))));
  const vf signed_far = vf_if_less(x, vf_set(0), vf_sub(vf_set(0), far), far);
  return vf_if_less(size, vf_set(0.625f), near, signed_far);
}

/* To 3e-7: a ratio of polynomials of x (minimax, as Eigen has it), which is 1 from 4 on. */
INLINE vf vf_erf(vf x) {
  x = vf_max(vf_set(-4), vf_min(vf_set(4), x));
  const vf z = vf_mul(x, x);
  vf p = vf_set(-2.72614225801306e-10f);
  p = vf_fma(p, z, vf_set(2.77068142495902e-08f));
  p = vf_fma(p, z, vf_set(-2.10102402082508e-06f));
  p = vf_fma(p, z, vf_set(-5.69250639462346e-05f));
  p = vf_fma(p, z, vf_set(-7.34990630326855e-04f));
  p = vf_fma(p, z, vf_set(-2.95459980854025e-03f));
  p = vf_fma(p, z, vf_set(-1.60960333262415e-02f));
  vf q = vf_set(-1.45660718464996e-05f);
  q = vf_fma(q, z, vf_set(-2.13374055278905e-04f));
  q = vf_fma(q, z, vf_set(-1.68282697438203e-03f));
  q = vf_fma(q, z, vf_set(-7.37332916720468e-03f));
  q = vf_fma(q, z, vf_set(-1.42647390514189e-02f));
  return vf_div(vf_mul(x, p), q);
}

/* log(1 + t) for t within [0, 1], to 2e-7 relative: 2 atanh(s) by its series, where s = t / (2 + t) <= 1/3. */
INLINE vf vf_log1p(vf t) {
  const vf s = vf_div(t, vf_add(vf_set(2), t)), z = vf_mul(s, s);
  vf p = vf_set(2.f / 15);
  p = vf_fma(p, z, vf_set(2.f / 13));
  p = vf_fma(p, z, vf_set(2.f / 11));
  p = vf_fma(p, z, vf_set(2.f / 9));
  p = vf_fma(p, z, vf_set(2.f / 7));
  p = vf_fma(p, z, vf_set(2.f / 5));
  p = vf_fma(p, z, vf_set(2.f / 3));
  return vf_fma(vf_mul(p, z), s, vf_add(s, s));
}

/* log(1 + e^x) = max(x, 0) + log(1 + e^-|x|) */
INLINE vf vf_softplus(vf x) {
  return vf_add(vf_max(vf_set(0), x), vf_log1p(vf_exp(vf_sub(vf_set(0), vf_abs(x)))));
}
