/* State spaces. Per channel with states h, step d and rates r:  h <- exp(-d r) h + (d x) B;  y = h . C + skip x.
 * Lanes are channels; y is summed over the states in order.
 */
#include "recurrent/scans_lanes.h"

/* One token of up to sixteen channels; h [states] stays with the caller. */
INLINE void selective_token(const struct mk_selective* j, int row, int t, int channel, int n, const vf* rates, vf* h,
                            vf skip) {
  const float *in = token_at(j->inputs, row, t), *out = token_at(j->outputs, row, t);
  const vf x = take(token_at(j->x, row, t) + channel, n);
  const vf step = vf_softplus(take(token_at(j->steps, row, t) + channel, n));
  const vf written = vf_mul(step, x), back = vf_sub(vf_set(0), step);
  vf y = vf_set(0);
  for (int s = 0; s < j->states; s++) {
    h[s] = vf_fma(vf_exp(vf_mul(back, rates[s])), h[s], vf_mul(written, vf_set(in[s])));
    y = vf_fma(h[s], vf_set(out[s]), y);
  }
  put(j->y + ((ptrdiff_t)row * j->width + t) * j->channels + channel, vf_fma(x, skip, y), n);
}

static void selective_lanes(const struct mk_selective* j, int row, int channel, int n) {
  const int count = real_tokens(j->counts, row, j->width);
  const ptrdiff_t at = (ptrdiff_t)row * j->states * j->channels + channel;
  const vf skip = take(j->skip + channel, n);
  vf h[MK_SELECTIVE_STATES], rates[MK_SELECTIVE_STATES];
  for (int s = 0; s < j->states; s++) {
    h[s] = take(j->before + at + (ptrdiff_t)s * j->channels, n);
    rates[s] = take(j->rates + (ptrdiff_t)s * j->channels + channel, n);
  }
  for (int t = 0; t < count; t++) selective_token(j, row, t, channel, n, rates, h, skip);
  pad(j->y + (ptrdiff_t)row * j->width * j->channels, count, j->width, j->channels, channel, n);
  for (int s = 0; s < j->states; s++) put(j->after + at + (ptrdiff_t)s * j->channels, h[s], n);
}

static void selective(const struct mk_selective* j, int row, int channel, int end) {
  for (int c = channel; c < end; c += LANES) selective_lanes(j, row, c, lesser(end - c, LANES));
}

/* Mamba-2: the state lies [states][size], lanes are the channels of a head. Several tokens pass over a state while
 * it is in a register, and several tiles of sixteen channels share what is read of a token. */
#if defined(__AVX512F__)
enum { TOKENS = 4, TILES = 2, TILES_OF_ONE = 4 };
#else
enum { TOKENS = 2, TILES = 1, TILES_OF_ONE = 2 };
#endif

struct steps {
  float step[TOGETHER], keep[TOGETHER];
};

INLINE void ssd_tokens(const struct mk_ssd* j, const struct steps* d, int row, int first, int i, int head, int channel,
                       const float* from, float* state, const int tokens, const int tiles, const int lanes) {
  const int group = head / (j->heads / j->groups), inner = j->heads * j->size, at = head * j->size + channel;
  const float *in[TOKENS], *out[TOKENS];
  vf written[TOKENS][TILES_OF_ONE], y[TOKENS][TILES_OF_ONE], keep[TOKENS];
  for (int t = 0; t < tokens; t++) {
    const float* x = token_at(j->mixed, row, first + i + t);
    in[t] = x + inner + group * j->states, out[t] = in[t] + j->groups * j->states, keep[t] = vf_set(d->keep[i + t]);
    for (int p = 0; p < tiles; p++) {
      written[t][p] = vf_mul(vf_set(d->step[i + t]), take(x + at + p * LANES, lanes));
      y[t][p] = vf_set(0);
    }
  }
  for (int n = 0; n < j->states; n++)
    for (int p = 0; p < tiles; p++) {
      vf s = take(from + (ptrdiff_t)n * j->size + p * LANES, lanes);
      for (int t = 0; t < tokens; t++) {
        s = vf_fma(keep[t], s, vf_mul(written[t][p], vf_set(in[t][n])));
        y[t][p] = vf_fma(s, vf_set(out[t][n]), y[t][p]);
      }
      put(state + (ptrdiff_t)n * j->size + p * LANES, s, lanes);
    }
  for (int t = 0; t < tokens; t++) {
    const float* x = token_at(j->mixed, row, first + i + t) + at;
    float* to = j->y + ((ptrdiff_t)row * j->width + first + i + t) * inner + at;
    for (int p = 0; p < tiles; p++)
      put(to + p * LANES, vf_fma(take(x + p * LANES, lanes), vf_set(j->skip[head]), y[t][p]), lanes);
  }
}

/* The block's tokens [i, i + tokens) for all channels of the head. */
INLINE void ssd_channels(const struct mk_ssd* j, const struct steps* d, int row, int first, int i, int head,
                         const float* from, float* state, const int tokens, const int tiles) {
  int c = 0;
  for (; c + tiles * LANES <= j->size; c += tiles * LANES)
    ssd_tokens(j, d, row, first, i, head, c, from + c, state + c, tokens, tiles, LANES);
  for (; c + LANES <= j->size; c += LANES)
    ssd_tokens(j, d, row, first, i, head, c, from + c, state + c, tokens, 1, LANES);
  if (c < j->size) ssd_tokens(j, d, row, first, i, head, c, from + c, state + c, tokens, 1, j->size - c);
}

static void ssd(const struct mk_ssd* j, int row, int head) {
  const int count = real_tokens(j->counts, row, j->width), inner = j->heads * j->size;
  const ptrdiff_t at = ((ptrdiff_t)row * j->heads + head) * j->states * j->size;
  const float* from = j->before + at;
  float* state = j->after + at;
  for (int first = 0; first < count; first += TOGETHER) {
    const int n = lesser(TOGETHER, count - first);
    struct steps d;
    const vf raw = vf_softplus(vf_add(of_tokens(j->steps, row, first, n, head), vf_set(j->bias[head])));
    const vf step = vf_min(vf_set(j->high), vf_max(vf_set(j->low), raw));
    vf_store(d.step, step);
    vf_store(d.keep, vf_exp(vf_mul(vf_sub(vf_set(0), step), vf_set(j->rates[head]))));
    int i = 0;
    for (; i + TOKENS <= n; i += TOKENS, from = state)
      ssd_channels(j, &d, row, first, i, head, from, state, TOKENS, TILES);
    for (; i < n; i++, from = state) ssd_channels(j, &d, row, first, i, head, from, state, 1, TILES_OF_ONE);
  }
  pad(j->y + (ptrdiff_t)row * j->width * inner, count, j->width, inner, head * j->size, j->size);
  if (count == 0 && state != from) memcpy(state, from, (size_t)j->states * j->size * 4);
}

const struct spaces COLUMN(spaces) = {selective, ssd};
