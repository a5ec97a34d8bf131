/* Layers that fold over tokens: convolutions and recurrences, token by token.
 *
 * A row's state is read from `before` and written to `after`, so that whoever offered the tokens may still forget
 * them. A token's numbers come from the state before it by the same operations in the same order, whatever step it
 * came in: so a prompt may be cut anywhere. `counts` says how many tokens of each row are real (NULL: all); behind
 * them the answer is 0.
 *
 * States lie with the channels that are independent of each other last, so that they are lanes.
 */
#pragma once
#include "simd/columns.h"
#include <stddef.h>

/* [rows][tokens][channels], maybe a part of something wider: strides in floats. at NULL: not there. */
struct mk_tokens {
  const float* at;
  ptrdiff_t row, token;
};

/* y = sum over taps of filters * input, + bias; through silu where that is asked. With gates, the input is
 * gate_in * x and the answer is multiplied by gate_out. */
struct mk_conv {
  struct mk_tokens x, gate_in, gate_out;
  const float *before, *filters, *bias; /* [rows][taps - 1][channels], [taps][channels], [channels] or NULL */
  float *y, *after;
  const int* counts;
  int rows, width, channels, taps, silu;
};
enum { MK_CONV_TAPS = 64 }; /* the most */

/* The gated delta rule over unit queries and keys, from what projections and convolution gave. */
struct mk_delta {
  struct mk_tokens mixed;           /* queries and keys [key_heads][key_dim] each, values [heads][value_dim] */
  struct mk_tokens decay, strength; /* [heads] or [heads][key_dim]; [heads]: before their activations */
  const float *rates, *bias;        /* the decay is exp(-rate * softplus(decay + bias)); rates [heads], bias as decay */
  const float* before;              /* [rows][heads][key_dim][value_dim] */
  float *y, *after;                 /* y [rows][width][heads][value_dim] */
  const int* counts;
  float most; /* the strength is most * sigmoid(strength) */
  int rows, width, key_heads, heads, key_dim, value_dim, by_channel;
};
enum { MK_DELTA_KEYS = 2048 }; /* the greatest key_dim */

/* Mamba's: every channel has `states` states, each with a rate of its own. */
struct mk_selective {
  struct mk_tokens x, steps;        /* [channels]; step sizes before their softplus */
  struct mk_tokens inputs, outputs; /* [states] */
  const float *rates, *skip;        /* a step keeps exp(-step * rate); rates [states][channels]; y + skip * x */
  const float* before;              /* [rows][states][channels] */
  float *y, *after;
  const int* counts;
  int rows, width, channels, states;
};
enum { MK_SELECTIVE_STATES = 256 }; /* the most */

/* Mamba-2's: one rate per head, whose channels share inputs and outputs with those of other heads of their group. */
struct mk_ssd {
  struct mk_tokens mixed, steps;   /* x [heads][size], inputs and outputs [groups][states] each; steps [heads] */
  const float *rates, *bias, *skip; /* [heads] each; the step is softplus(steps + bias) within [low, high] */
  const float* before;             /* [rows][heads][states][size] */
  float *y, *after;
  const int* counts;
  float low, high;
  int rows, width, heads, size, groups, states;
};

/* The real-gated linear recurrent unit, its block-diagonal gates included. */
struct mk_lru {
  struct mk_tokens x;                 /* [heads][block] */
  const float *inputs, *input_bias;   /* [heads][block in][block out], [heads][block] */
  const float *keeps, *keep_bias;
  const float* rates;                 /* [heads][block]: log of what is kept = -rate * sigmoid(gate) */
  const int* positions;               /* [rows][width]: the token at 0 enters whole */
  const float* before;                /* [rows][heads][block] */
  float *y, *after;
  const int* counts;
  int rows, width, heads, block;
};

/* rms(x * open(gate)) * weight, or rms(x) * weight * open(gate), each of `groups` parts of a row normed apart. */
struct mk_gated_norm {
  struct mk_tokens x, gate;
  const float* weight;      /* [width], or [width of a part] where all parts share it */
  float* y;
  float eps;
  int rows, tokens, width, groups, shared, gate_first, sigmoid; /* open: silu, or the sigmoid alone */
};

struct conv { void (*piece)(const struct mk_conv*, int row, int first, int stop, int channel, int end); };
struct delta { void (*head)(const struct mk_delta*, int row, int head, int value, int end); };
struct spaces {
  void (*selective)(const struct mk_selective*, int row, int channel, int end);
  void (*ssd)(const struct mk_ssd*, int row, int head);
};
struct lru { void (*head)(const struct mk_lru*, int row, int head); };
struct gated_norm { void (*token)(const struct mk_gated_norm*, int row, int token); };
DECLARE_COLUMNS(conv, conv);
DECLARE_COLUMNS(delta, delta);
DECLARE_COLUMNS(spaces, spaces);
DECLARE_COLUMNS(lru, lru);
DECLARE_COLUMNS(gated_norm, gated_norm);

#ifdef __cplusplus
extern "C" {
#endif
void mk_conv_rows(struct mk_conv);
void mk_delta_rows(struct mk_delta);
void mk_selective_rows(struct mk_selective);
void mk_ssd_rows(struct mk_ssd);
void mk_lru_rows(struct mk_lru);
void mk_gated_norm_rows(struct mk_gated_norm);
#ifdef __cplusplus
}
#endif
