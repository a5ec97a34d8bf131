#include "recurrent/scans.h"
#include "digests.h"

enum { ROWS = 3, WIDTH = 5 };

static struct mk_tokens tokens(int channels, float low, float high) {
  return (struct mk_tokens){floats((size_t)ROWS * WIDTH * channels, low, high), (ptrdiff_t)WIDTH * channels, channels};
}

static void digest_conv(int channels, int taps, int gated) {
  const size_t size = (size_t)ROWS * WIDTH * channels, kept = (size_t)ROWS * (taps - 1) * channels;
  struct mk_conv c = {
      .x = tokens(channels, -2, 2), .before = floats(kept, -2, 2), .filters = floats((size_t)taps * channels, -1, 1),
      .bias = floats((size_t)channels, -1, 1), .y = room(size), .after = room(kept), .counts = counts(ROWS, WIDTH),
      .rows = ROWS, .width = WIDTH, .channels = channels, .taps = taps, .silu = !gated};
  if (gated) c.gate_in = tokens(channels, -2, 2), c.gate_out = tokens(channels, -2, 2);
  mk_conv_rows(c);
  say_floats(c.y, size, "conv channels=%d taps=%d gated=%d", channels, taps, gated);
  say_floats(c.after, kept, "conv channels=%d taps=%d gated=%d state", channels, taps, gated);
}

static void digest_gated_norm(int width, int groups, int gate_first) {
  const size_t size = (size_t)ROWS * WIDTH * width;
  struct mk_gated_norm n = {
      .x = tokens(width, -3, 3), .gate = tokens(width, -4, 4), .weight = floats((size_t)width, 0.5f, 2), .y = room(size),
      .eps = 1e-5f, .rows = ROWS, .tokens = WIDTH, .width = width, .groups = groups, .gate_first = gate_first,
      .sigmoid = !gate_first};
  mk_gated_norm_rows(n);
  say_floats(n.y, size, "gated_norm width=%d groups=%d gate_first=%d", width, groups, gate_first);
}

void digest_convolution(void) {
  digest_conv(48, 4, 0);
  digest_conv(37, 3, 1);
  digest_conv(1100, 4, 0);
  digest_gated_norm(64, 1, 0);
  digest_gated_norm(72, 3, 1);
}

static void digest_delta(int key_dim, int value_dim, int by_channel) {
  const int key_heads = 2, heads = 4, rates = by_channel ? heads * key_dim : heads;
  const size_t kept = (size_t)ROWS * heads * key_dim * value_dim, size = (size_t)ROWS * WIDTH * heads * value_dim;
  struct mk_delta d = {
      .mixed = tokens(2 * key_heads * key_dim + heads * value_dim, -1, 1), .decay = tokens(rates, -3, 3),
      .strength = tokens(heads, -3, 3), .rates = floats((size_t)heads, 0.1f, 2), .bias = floats((size_t)rates, -1, 1),
      .before = floats(kept, -1, 1), .y = room(size), .after = room(kept), .counts = counts(ROWS, WIDTH), .most = 1,
      .rows = ROWS, .width = WIDTH, .key_heads = key_heads, .heads = heads, .key_dim = key_dim, .value_dim = value_dim,
      .by_channel = by_channel};
  mk_delta_rows(d);
  say_floats(d.y, size, "delta key=%d value=%d by_channel=%d", key_dim, value_dim, by_channel);
  say_floats(d.after, kept, "delta key=%d value=%d by_channel=%d state", key_dim, value_dim, by_channel);
}

static void digest_selective(int channels, int states) {
  const size_t size = (size_t)ROWS * WIDTH * channels, kept = (size_t)ROWS * states * channels;
  struct mk_selective s = {
      .x = tokens(channels, -2, 2), .steps = tokens(channels, -4, 2), .inputs = tokens(states, -1, 1),
      .outputs = tokens(states, -1, 1), .rates = floats((size_t)states * channels, 0.1f, 8),
      .skip = floats((size_t)channels, -1, 1), .before = floats(kept, -1, 1), .y = room(size), .after = room(kept),
      .counts = counts(ROWS, WIDTH), .rows = ROWS, .width = WIDTH, .channels = channels, .states = states};
  mk_selective_rows(s);
  say_floats(s.y, size, "selective channels=%d states=%d", channels, states);
  say_floats(s.after, kept, "selective channels=%d states=%d state", channels, states);
}

static void digest_ssd(int head_size, int states) {
  const int heads = 4, groups = 2;
  const size_t size = (size_t)ROWS * WIDTH * heads * head_size, kept = (size_t)ROWS * heads * states * head_size;
  struct mk_ssd s = {
      .mixed = tokens(heads * head_size + 2 * groups * states, -1, 1), .steps = tokens(heads, -3, 2),
      .rates = floats(4, 0.1f, 4), .bias = floats(4, -1, 1), .skip = floats(4, -1, 1), .before = floats(kept, -1, 1),
      .y = room(size), .after = room(kept), .counts = counts(ROWS, WIDTH), .low = 0.001f, .high = 2, .rows = ROWS,
      .width = WIDTH, .heads = heads, .size = head_size, .groups = groups, .states = states};
  mk_ssd_rows(s);
  say_floats(s.y, size, "ssd size=%d states=%d", head_size, states);
  say_floats(s.after, kept, "ssd size=%d states=%d state", head_size, states);
}

static void digest_lru(int heads, int block) {
  const size_t across = (size_t)heads * block, size = (size_t)ROWS * WIDTH * across, square = across * block;
  struct mk_lru l = {
      .x = tokens((int)across, -2, 2), .inputs = floats(square, -1, 1), .input_bias = floats(across, -1, 1),
      .keeps = floats(square, -1, 1), .keep_bias = floats(across, -1, 1), .rates = floats(across, 0.1f, 8),
      .positions = counts(ROWS * WIDTH, 2), .before = floats((size_t)ROWS * across, -1, 1), .y = room(size),
      .after = room((size_t)ROWS * across), .counts = counts(ROWS, WIDTH), .rows = ROWS, .width = WIDTH, .heads = heads,
      .block = block};
  mk_lru_rows(l);
  say_floats(l.y, size, "lru heads=%d block=%d", heads, block);
  say_floats(l.after, (size_t)ROWS * across, "lru heads=%d block=%d state", heads, block);
}

void digest_recurrences(void) {
  digest_delta(64, 64, 0);
  digest_delta(48, 80, 1);
  digest_selective(96, 16);
  digest_selective(70, 8);
  digest_ssd(64, 32);
  digest_ssd(40, 128);
  digest_lru(2, 48);
  digest_lru(3, 20);
}
