/* The real-gated linear recurrent unit: log a = -rate * sigmoid(keep gate), h <- a h + sqrt(1 - a^2) * sigmoid(input
 * gate) * x. A head's gates are products of its own channels alone, so one thread computes them and then folds.
 *
 * The products have the order of all float products: blocks of 64 inputs, each summed from zero in order, then added.
 */
#include "scans_lanes.h"

enum { INPUTS = 64 };

/* e^x - 1 for x <= 0: vf_exp's polynomial, with the 1 taken off before anything is rounded to it. */
INLINE vf vf_expm1(vf x) {
  const vf y = vf_max(vf_set(-80), x);
  const vf n = vf_round(vf_mul(y, vf_set(1.44269504f)));
  const vf r = vf_fma(n, vf_set(2.12194440e-4f), vf_fma(n, vf_set(-0.693359375f), y));
  vf p = vf_set(1.9875691500e-4f);
  p = vf_fma(p, r, vf_set(1.3981999507e-3f));
  p = vf_fma(p, r, vf_set(8.3334519073e-3f));
  p = vf_fma(p, r, vf_set(4.1665795894e-2f));
  p = vf_fma(p, r, vf_set(1.6666665459e-1f));
  p = vf_fma(p, r, vf_set(5.0000001201e-1f));
  const vf power = vf_ldexp(vf_set(1), n);
  return vf_fma(power, vf_fma(vf_mul(r, r), p, r), vf_sub(power, vf_set(1)));
}

#if defined(__AVX512F__)
enum { TOKENS = 8 };
#else
enum { TOKENS = 4 };
#endif

/* gate[t] = sigmoid(x[t] W + bias) for sixteen outputs; W's rows are `block` floats apart. */
INLINE void open_gates(const float* const* x, const float* weight, const float* bias, int block, int out, int lanes, vf* gate,
                       const int tokens) {
  for (int t = 0; t < tokens; t++) gate[t] = vf_set(0);
  for (int first = 0; first < block; first += INPUTS) {
    vf sum[TOKENS];
    for (int t = 0; t < tokens; t++) sum[t] = vf_set(0);
    for (int k = first; k < lesser(first + INPUTS, block); k++) {
      const vf w = take(weight + (ptrdiff_t)k * block + out, lanes);
      for (int t = 0; t < tokens; t++) sum[t] = vf_fma(vf_set(x[t][k]), w, sum[t]);
    }
    for (int t = 0; t < tokens; t++) gate[t] = vf_add(gate[t], sum[t]);
  }
  for (int t = 0; t < tokens; t++) gate[t] = vf_sigmoid(vf_add(gate[t], take(bias + out, lanes)));
}

/* Tokens [first, first + tokens) of sixteen channels of a head; h is their state before and after. */
INLINE vf fold(const struct mk_lru* j, int row, int first, int head, int channel, int lanes, vf h, const int tokens) {
  const int block = j->block, width = j->heads * block, at = head * block;
  const ptrdiff_t matrix = (ptrdiff_t)head * block * block;
  const float* x[TOKENS];
  vf enters[TOKENS], keeps[TOKENS];
  for (int t = 0; t < tokens; t++) x[t] = token_at(j->x, row, first + t) + at;
  open_gates(x, j->inputs + matrix, j->input_bias + at, block, channel, lanes, enters, tokens);
  open_gates(x, j->keeps + matrix, j->keep_bias + at, block, channel, lanes, keeps, tokens);
  const vf rate = take(j->rates + at + channel, lanes), zero = vf_set(0);
  for (int t = 0; t < tokens; t++) {
    const ptrdiff_t token = (ptrdiff_t)row * j->width + first + t;
    const vf log = vf_sub(zero, vf_mul(keeps[t], rate));
    const vf root = vf_sqrt(vf_sub(zero, vf_expm1(vf_add(log, log)))), weight = j->positions[token] ? root : vf_set(1);
    const vf in = vf_mul(vf_mul(take(x[t] + channel, lanes), enters[t]), weight);
    h = vf_fma(vf_exp(log), h, in);
    put(j->y + token * width + at + channel, h, lanes);
  }
  return h;
}

static void head(const struct mk_lru* j, int row, int head) {
  const int count = real_tokens(j->counts, row, j->width), block = j->block, width = j->heads * block;
  const ptrdiff_t at = (ptrdiff_t)row * width + (ptrdiff_t)head * block;
  memcpy(j->after + at, j->before + at, (size_t)block * 4);
  int t = 0;
  for (; t + TOKENS <= count; t += TOKENS)
    for (int c = 0; c < block; c += LANES) {
      const int n = lesser(block - c, LANES);
      put(j->after + at + c, fold(j, row, t, head, c, n, take(j->after + at + c, n), TOKENS), n);
    }
  for (; t < count; t++)
    for (int c = 0; c < block; c += LANES) {
      const int n = lesser(block - c, LANES);
      put(j->after + at + c, fold(j, row, t, head, c, n, take(j->after + at + c, n), 1), n);
    }
  for (; t < j->width; t++) memset(j->y + ((ptrdiff_t)row * j->width + t) * width + (ptrdiff_t)head * block, 0, (size_t)block * 4);
}

const struct lru COLUMN(lru) = {head};
