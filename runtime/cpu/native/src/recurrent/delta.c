/* The gated delta rule. Per head with state S [key_dim][value_dim], decay a (one per head or per key channel):
 *
 *     S <- a S;   w = strength * (v - S'k);   S <- S + k w';   y = S'q
 *
 * computed as held = S'(a k), asked = S'(a q), S <- a S + k w', y = asked + (k . q) w: so one pass over the state
 * brings a token in and asks for the next one. Lanes are value channels; sums run over keys in order.
 */
#include "recurrent/scans_lanes.h"

#if defined(__AVX512F__)
enum { TILES = 4 }; /* of sixteen value channels that are computed side by side */
#else
enum { TILES = 2 };
#endif

/* What some tokens of a head bring, by key channel where there are MK_DELTA_KEYS. */
struct brought {
  float key[MK_DELTA_KEYS], seen[MK_DELTA_KEYS], asked[MK_DELTA_KEYS]; /* k, a k and a q */
  float kept[MK_DELTA_KEYS];                                           /* a, where every channel has its own */
  float keep[TOGETHER], write[TOGETHER], self[TOGETHER];               /* a, the strength, k . q */
};

INLINE vf decay_of(vf raw, vf bias, vf rate) {
  return vf_exp(vf_sub(vf_set(0), vf_mul(rate, vf_softplus(vf_add(raw, bias)))));
}

INLINE float inverse_length(const float* x, int size) {
  vf sum = vf_set(0);
  for (int i = 0; i < size; i += LANES) {
    const vf v = take(x + i, lesser(size - i, LANES));
    sum = vf_fma(v, v, sum);
  }
  return 1.f / __builtin_sqrtf(vf_sum(sum) + 1e-6f);
}

/* Fills b for token i of the block, which is `token` of the row. */
INLINE void bring_token(const struct mk_delta* j, struct brought* b, int i, int row, int token, int head) {
  const int size = j->key_dim, key_head = head / (j->heads / j->key_heads);
  const float* q = token_at(j->mixed, row, token) + (ptrdiff_t)key_head * size;
  const float* k = q + (ptrdiff_t)j->key_heads * size;
  const vf query_factor = vf_set(inverse_length(q, size) * (1.f / __builtin_sqrtf((float)size)));
  const vf key_factor = vf_set(inverse_length(k, size)), keep = vf_set(b->keep[i]);
  const float* decay = j->by_channel ? token_at(j->decay, row, token) + (ptrdiff_t)head * size : NULL;
  vf self = vf_set(0);
  for (int c = 0; c < size; c += LANES) {
    const int n = lesser(size - c, LANES), at = i * size + c;
    const vf key = vf_mul(take(k + c, n), key_factor), query = vf_mul(take(q + c, n), query_factor);
    vf a = keep;
    if (decay) {
      a = decay_of(take(decay + c, n), take(j->bias + (ptrdiff_t)head * size + c, n), vf_set(j->rates[head]));
      put(b->kept + at, a, n);
    }
    put(b->key + at, key, n), put(b->seen + at, vf_mul(a, key), n), put(b->asked + at, vf_mul(a, query), n);
    self = vf_fma(key, query, self);
  }
  b->self[i] = vf_sum(self);
}

static void bring(const struct mk_delta* j, struct brought* b, int row, int first, int n, int head) {
  vf_store(b->write, vf_mul(vf_sigmoid(of_tokens(j->strength, row, first, n, head)), vf_set(j->most)));
  vf keep = vf_set(0);
  if (!j->by_channel)
    keep = decay_of(of_tokens(j->decay, row, first, n, head), vf_set(j->bias[head]), vf_set(j->rates[head]));
  vf_store(b->keep, keep);
  for (int i = 0; i < n; i++) bring_token(j, b, i, row, first + i, head);
}

/* One token into the state, of `tiles` tiles of which the last has `lanes` lanes; where another follows, what the
 * state holds for it is asked in the same pass. */
INLINE void advance(const struct mk_delta* j, const struct brought* b, int t, const float* from, float* state,
                    const vf* write, vf* held, vf* asked, const int tiles, const int lanes, const int by_channel,
                    const int follows) {
  const int size = j->key_dim;
  const float *key = b->key + t * size, *kept = b->kept + t * size;
  const float *seen = b->seen + (t + 1) * size, *ask = b->asked + (t + 1) * size;
  const vf keep = vf_set(b->keep[t]);
  for (int i = 0; i < tiles; i++) held[i] = asked[i] = vf_set(0);
  for (int k = 0; k < size; k++) {
    const vf a = by_channel ? vf_set(kept[k]) : keep, key_k = vf_set(key[k]);
    for (int i = 0; i < tiles; i++) {
      const ptrdiff_t at = (ptrdiff_t)k * j->value_dim + i * LANES;
      const vf s = vf_fma(write[i], key_k, vf_mul(a, take(from + at, lanes)));
      put(state + at, s, lanes);
      if (follows) held[i] = vf_fma(s, vf_set(seen[k]), held[i]), asked[i] = vf_fma(s, vf_set(ask[k]), asked[i]);
    }
  }
}

/* All tokens of the block for `tiles` tiles of value channels. The state is read from `from` for the first token
 * and lies in `state` afterwards. */
INLINE void fold(const struct mk_delta* j, const struct brought* b, int tokens, const float* from, float* state,
                 const float* v, float* y, const int tiles, const int lanes, const int by_channel) {
  const ptrdiff_t y_step = (ptrdiff_t)j->heads * j->value_dim;
  vf held[TILES], asked[TILES], write[TILES];
  for (int i = 0; i < tiles; i++) held[i] = asked[i] = vf_set(0);
  for (int k = 0; k < j->key_dim; k++)
    for (int i = 0; i < tiles; i++) {
      const vf s = take(from + (ptrdiff_t)k * j->value_dim + i * LANES, lanes);
      held[i] = vf_fma(s, vf_set(b->seen[k]), held[i]), asked[i] = vf_fma(s, vf_set(b->asked[k]), asked[i]);
    }
  for (int t = 0; t < tokens; t++, v += j->mixed.token, y += y_step, from = state) {
    for (int i = 0; i < tiles; i++) {
      write[i] = vf_mul(vf_set(b->write[t]), vf_sub(take(v + i * LANES, lanes), held[i]));
      put(y + i * LANES, vf_fma(write[i], vf_set(b->self[t]), asked[i]), lanes);
    }
    if (t + 1 < tokens) advance(j, b, t, from, state, write, held, asked, tiles, lanes, by_channel, 1);
    else advance(j, b, t, from, state, write, held, asked, tiles, lanes, by_channel, 0);
  }
}

/* The block's tokens for all value channels [value, end) of a head. */
INLINE void fold_all(const struct mk_delta* j, const struct brought* b, int row, int first, int n, int head, int value,
                     int end, const int by_channel) {
  const ptrdiff_t at = ((ptrdiff_t)row * j->heads + head) * j->key_dim * j->value_dim;
  const float *from = (first ? j->after : j->before) + at;
  const ptrdiff_t keys = 2 * (ptrdiff_t)j->key_heads * j->key_dim;
  const float* v = token_at(j->mixed, row, first) + keys + (ptrdiff_t)head * j->value_dim;
  float *state = j->after + at, *y = j->y + (((ptrdiff_t)row * j->width + first) * j->heads + head) * j->value_dim;
  int c = value;
  for (; c + TILES * LANES <= end; c += TILES * LANES)
    fold(j, b, n, from + c, state + c, v + c, y + c, TILES, LANES, by_channel);
  for (; c + LANES <= end; c += LANES) fold(j, b, n, from + c, state + c, v + c, y + c, 1, LANES, by_channel);
  if (c < end) fold(j, b, n, from + c, state + c, v + c, y + c, 1, end - c, by_channel);
}

static void head(const struct mk_delta* j, int row, int head, int value, int end) {
  const int count = real_tokens(j->counts, row, j->width), block = lesser(TOGETHER, MK_DELTA_KEYS / j->key_dim);
  const size_t bytes = (size_t)(end - value) * 4;
  struct brought b;
  for (int first = 0; first < count; first += block) {
    const int n = lesser(block, count - first);
    bring(j, &b, row, first, n, head);
    if (j->by_channel) fold_all(j, &b, row, first, n, head, value, end, 1);
    else fold_all(j, &b, row, first, n, head, value, end, 0);
  }
  const ptrdiff_t wide = (ptrdiff_t)j->heads * j->value_dim;
  pad(j->y + row * j->width * wide, count, j->width, wide, (ptrdiff_t)head * j->value_dim + value, end - value);
  for (int k = 0; count == 0 && j->after != j->before && k < j->key_dim; k++) {
    const ptrdiff_t at = (((ptrdiff_t)row * j->heads + head) * j->key_dim + k) * j->value_dim + value;
    memcpy(j->after + at, j->before + at, bytes);
  }
}

const struct delta COLUMN(delta) = {head};
