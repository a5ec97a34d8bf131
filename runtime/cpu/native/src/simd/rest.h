/* A row of floats in lanes, whatever its width: what is behind its last sixteen is treated as sixteen more, which are 0 where there
   are none. */
#pragma once
#include "simd/registers.h"

/* i: where the lanes begin, n: how many of them there are */
#define FOR_LANES(i, n, width) \
  for (int i = 0, n; (n = (width) - i < LANES ? (width) - i : LANES) > 0; i += LANES)

INLINE vf load(const float* p, int n) { return n == LANES ? vf_load(p) : vf_load_some(p, n); }
INLINE void store(float* p, vf a, int n) {
  if (n == LANES) vf_store(p, a);
  else vf_store_some(p, a, n);
}
