/* Short causal convolutions: lanes are channels, taps are added from the oldest on. */
#include "recurrent/scans_lanes.h"

/* Where an input lies: a token of this step, with its gate, or one of those before it. */
struct input {
  const float *x, *gate;
};

INLINE struct input input_at(const struct mk_conv* j, int row, int token) {
  const int kept = j->taps - 1;
  if (token < 0) return (struct input){j->before + ((ptrdiff_t)row * kept + kept + token) * j->channels, NULL};
  return (struct input){token_at(j->x, row, token), j->gate_in.at ? token_at(j->gate_in, row, token) : NULL};
}

INLINE vf take_input(struct input in, int channel, int n) {
  const vf x = take(in.x + channel, n);
  return in.gate ? vf_mul(x, take(in.gate + channel, n)) : x;
}

INLINE void one_token(const struct mk_conv* j, int row, int token, int channel, int end) {
  struct input in[MK_CONV_TAPS];
  for (int k = 0; k < j->taps; k++) in[k] = input_at(j, row, token - (j->taps - 1) + k);
  float* y = j->y + ((ptrdiff_t)row * j->width + token) * j->channels;
  const float* gate = j->gate_out.at ? token_at(j->gate_out, row, token) : NULL;
  for (int c = channel; c < end; c += LANES) {
    const int n = lesser(end - c, LANES);
    vf sum = vf_mul(take_input(in[0], c, n), take(j->filters + c, n));
    for (int k = 1; k < j->taps; k++)
      sum = vf_fma(take_input(in[k], c, n), take(j->filters + (ptrdiff_t)k * j->channels + c, n), sum);
    if (j->bias) sum = vf_add(sum, take(j->bias + c, n));
    if (j->silu) sum = vf_silu(sum);
    put(y + c, gate ? vf_mul(sum, take(gate + c, n)) : sum, n);
  }
}

/* Tokens [first, stop) of a row, channels [channel, end); the state as well, with the first tokens. */
static void piece(const struct mk_conv* j, int row, int first, int stop, int channel, int end) {
  const int count = real_tokens(j->counts, row, j->width), kept = j->taps - 1;
  for (int t = first; t < lesser(stop, count); t++) one_token(j, row, t, channel, end);
  float* y = j->y + (ptrdiff_t)row * j->width * j->channels;
  pad(y, first > count ? first : count, stop, j->channels, channel, end - channel);
  if (first) return;
  for (int i = 0; i < kept; i++) {
    const struct input last = input_at(j, row, count - kept + i);
    float* to = j->after + ((ptrdiff_t)row * kept + i) * j->channels;
    for (int c = channel; c < end; c += LANES) {
      const int n = lesser(end - c, LANES);
      put(to + c, take_input(last, c, n), n);
    }
  }
}

const struct conv COLUMN(conv) = {piece};
