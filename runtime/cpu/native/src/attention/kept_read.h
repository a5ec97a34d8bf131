/* Numbers of a vector as its form stands for them, sixteen at a time, and lines of memory asked for before they are read.
 *
 * A form that the compiler knows costs no branch. Packed ones are code * scale + bias in two roundings, as MLX's dequantize
 * has it.
 */
#pragma once
#include "attention/kept.h"
#include "simd/lines.h"
#include "simd/registers.h"

/* One vector. */
struct vector {
  const char* codes;
  const float *scale, *bias; /* of each group, where it is packed */
};

INLINE int packed(const int form) { return form == MK_KEPT_Q8 || form == MK_KEPT_Q4; }

/* How many numbers a line of memory holds. */
INLINE int in_line(const int form) { return form == MK_KEPT_F32 ? 16 : form == MK_KEPT_Q8 ? 64 : form == MK_KEPT_Q4 ? 128 : 32; }

INLINE ptrdiff_t bytes_of(const int form, int numbers) { return (ptrdiff_t)numbers * 64 / in_line(form); }

INLINE struct vector vector_at(const int form, const struct mk_span* s, ptrdiff_t i) {
  struct vector x = {s->part[0] + i * s->slot[0], 0, 0};
  if (packed(form)) x.scale = (const float*)(s->part[1] + i * s->slot[1]), x.bias = (const float*)(s->part[2] + i * s->slot[2]);
  return x;
}

/* Those from `at` on, a multiple of 16, which are all of one group. */
INLINE vf numbers_at(const int form, const struct vector* x, int at, int group) {
  const char* p = x->codes + bytes_of(form, at);
  if (form == MK_KEPT_F32) return vf_load((const float*)p);
  if (form == MK_KEPT_BF16) return vf_bf16((const uint16_t*)p);
  if (form == MK_KEPT_F16) return vf_f16((const uint16_t*)p);
  const vf code = form == MK_KEPT_Q8 ? vf_bytes((const uint8_t*)p) : vf_nibbles((const uint8_t*)p);
  return vf_add(vf_mul(code, vf_set(x->scale[group])), vf_set(x->bias[group]));
}

/* What is read `ahead` vectors later, from number `at` on: once for each line. Scales come by themselves. */
INLINE void ask(const int form, const struct mk_span* s, const struct vector* x, int at, int ahead) {
  if (at % in_line(form) == 0) bring_lines(x->codes + ahead * s->slot[0] + bytes_of(form, at), 1);
}
