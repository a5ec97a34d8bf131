/* The real-gated linear recurrent unit: log a = -rate * sigmoid(keep gate), h <- a h + sqrt(1 - a^2) * sigmoid(input
 * gate) * x. A head's gates are products of its own channels alone, so one thread computes them and then folds.
 *
 * The products have the order of all float products: blocks of 64 inputs, each summed from zero in order, then added.
 */
#include "recurrent/scans_lanes.h"

enum { INPUTS = 64 };

#if defined(__AVX512F__)
enum { TOKENS = 8 };
#else
enum { TOKENS = 2 };
#endif
enum { SHARE = 64 }; /* tokens for which the weights of sixteen channels stay in the nearest cache */

/* The two gates of some tokens for `lanes` outputs from `out` on: sigmoid(x W + bias). */
INLINE void open_gates(const struct mk_lru* j, int head, const float* const* x, int out, int lanes, vf* enters,
                       vf* keeps, const int tokens) {
  const ptrdiff_t block = j->block, matrix = head * block * block, at = head * block;
  const float *into = j->inputs + matrix + out, *keep = j->keeps + matrix + out;
  for (int t = 0; t < tokens; t++) enters[t] = keeps[t] = vf_set(0);
  for (int first = 0; first < block; first += INPUTS) {
    vf in_sum[TOKENS], keep_sum[TOKENS];
    for (int t = 0; t < tokens; t++) in_sum[t] = keep_sum[t] = vf_set(0);
    for (int k = first; k < lesser(first + INPUTS, j->block); k++) {
      const vf in_k = take(into + k * block, lanes), keep_k = take(keep + k * block, lanes);
      for (int t = 0; t < tokens; t++) {
        const vf x_k = vf_set(x[t][k]);
        in_sum[t] = vf_fma(x_k, in_k, in_sum[t]), keep_sum[t] = vf_fma(x_k, keep_k, keep_sum[t]);
      }
    }
    for (int t = 0; t < tokens; t++) enters[t] = vf_add(enters[t], in_sum[t]), keeps[t] = vf_add(keeps[t], keep_sum[t]);
  }
  const vf in_bias = take(j->input_bias + at + out, lanes), keep_bias = take(j->keep_bias + at + out, lanes);
  for (int t = 0; t < tokens; t++)
    enters[t] = vf_sigmoid(vf_add(enters[t], in_bias)), keeps[t] = vf_sigmoid(vf_add(keeps[t], keep_bias));
}

/* Tokens [first, first + tokens) of `lanes` channels of a head; h is their state before, and what is returned after. */
INLINE vf fold(const struct mk_lru* j, int row, int first, int head, int channel, int lanes, vf h, const int tokens) {
  const ptrdiff_t width = (ptrdiff_t)j->heads * j->block, at = (ptrdiff_t)head * j->block;
  const float* x[TOKENS];
  vf enters[TOKENS], keeps[TOKENS];
  for (int t = 0; t < tokens; t++) x[t] = token_at(j->x, row, first + t) + at;
  open_gates(j, head, x, channel, lanes, enters, keeps, tokens);
  const vf rate = take(j->rates + at + channel, lanes), zero = vf_set(0);
  for (int t = 0; t < tokens; t++) {
    const ptrdiff_t token = (ptrdiff_t)row * j->width + first + t;
    const vf log = vf_sub(zero, vf_mul(keeps[t], rate));
    /* Rounded where models are trained with it rounded: an exact 1 - a^2 is another network by 5e-5. */
    const vf root = vf_sqrt(vf_sub(vf_set(1), vf_exp(vf_add(log, log)))), weight = j->positions[token] ? root : vf_set(1);
    h = vf_fma(vf_exp(log), h, vf_mul(vf_mul(take(x[t] + channel, lanes), enters[t]), weight));
    put(j->y + token * width + at + channel, h, lanes);
  }
  return h;
}

INLINE void fold_lanes(const struct mk_lru* j, int row, int first, int stop, int head, int channel, const int lanes) {
  float* state = j->after + ((ptrdiff_t)row * j->heads + head) * j->block + channel;
  vf h = take(state, lanes);
  int t = first;
  for (; t + TOKENS <= stop; t += TOKENS) h = fold(j, row, t, head, channel, lanes, h, TOKENS);
  for (; t + TOKENS / 2 <= stop; t += TOKENS / 2) h = fold(j, row, t, head, channel, lanes, h, TOKENS / 2);
  for (; t < stop; t++) h = fold(j, row, t, head, channel, lanes, h, 1);
  put(state, h, lanes);
}

static void head(const struct mk_lru* j, int row, int head) {
  const int count = real_tokens(j->counts, row, j->width), block = j->block;
  const ptrdiff_t width = (ptrdiff_t)j->heads * block, at = (ptrdiff_t)head * block;
  if (j->after != j->before) memcpy(j->after + row * width + at, j->before + row * width + at, (size_t)block * 4);
  for (int first = 0; first < count; first += SHARE) {
    const int stop = lesser(first + SHARE, count);
    int c = 0;
    for (; c + LANES <= block; c += LANES) fold_lanes(j, row, first, stop, head, c, LANES);
    if (c < block) fold_lanes(j, row, first, stop, head, c, block - c);
  }
  pad(j->y + row * j->width * width, count, j->width, width, at, block);
}

const struct lru COLUMN(lru) = {head};
