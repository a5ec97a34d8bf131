/* Activations, number by number, and what gated layers multiply by them. */
#pragma once
#include "simd/columns.h"
#include <stddef.h>

/* The order of `native/activations.py`'s names. */
enum mk_act {
  MK_SILU,
  MK_GELU,
  MK_GELU_TANH,
  MK_RELU,
  MK_RELU2,
  MK_SOFTPLUS,
  MK_SIGMOID,
  MK_TANH,
  MK_ACTS,
};

/* act(gate) * up; or, with a limit above 0, (up + 1) * gate * sigmoid(slope * gate), where gate is at most the limit
 * and up is within it on both sides (GPT-OSS). */
struct mk_gate {
  enum mk_act act;
  float limit, slope;
};

/* xIELU (arXiv 2411.13010): rise x^2 + beta x above 0, fall (e^min(x, eps) - 1 - x) + beta x elsewhere. eps: at most 0. */
struct mk_bend {
  float rise, fall, beta, eps;
};

struct activations {
  void (*act)(enum mk_act act, const float* x, float* y, int count);
  void (*gate)(struct mk_gate kind, const float* gate, const float* up, float* y, int count);
  void (*softcap)(float cap, const float* x, float* y, int count); /* cap * tanh(x / cap) */
  void (*bend)(struct mk_bend by, const float* x, float* y, int count);
};
DECLARE_COLUMNS(activations, activations);

#ifdef __cplusplus
extern "C" {
#endif
/* rows of `width` floats; strides: floats from one row to the next. y is dense. */
void mk_act_rows(enum mk_act act, const float* x, ptrdiff_t stride, float* y, int rows, int width);
void mk_gate_rows(struct mk_gate kind, const float* gate, ptrdiff_t gate_stride, const float* up, ptrdiff_t up_stride, float* y,
             int rows, int width);
void mk_softcap_rows(float cap, const float* x, ptrdiff_t stride, float* y, int rows, int width);
void mk_bend_rows(struct mk_bend by, const float* x, ptrdiff_t stride, float* y, int rows, int width);
#ifdef __cplusplus
}
#endif
