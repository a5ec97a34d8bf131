#include "rows/norms.h"
#include "rows/activations.h"
#include "digests.h"
#include "rows/rope.h"
#include "rows/softmax.h"

enum { ROWS = 9 };

static void digest_width(int width) {
  const size_t size = (size_t)ROWS * width;
  const float *x = floats(size, -3, 3), *add = floats(size, -3, 3), *weight = floats((size_t)width, 0.5f, 2);
  const float *bias = floats((size_t)width, -1, 1), *wide = floats(size, -90, 90);
  float *y = room(size), *one = room(ROWS);
  mk_rms_norm(x, width, weight, NULL, 0, y, ROWS, width, 1e-5f);
  say_floats(y, size, "rms_norm width=%d", width);
  mk_rms_norm(x, width, NULL, add, width, y, ROWS, width, 1e-6f);
  say_floats(y, size, "rms_norm width=%d without a weight, added", width);
  mk_layer_norm(x, width, weight, bias, y, ROWS, width, 1e-5f);
  say_floats(y, size, "layer_norm width=%d", width);
  mk_softmax(wide, width, y, ROWS, width);
  say_floats(y, size, "softmax width=%d", width);
  mk_log_sum_exp(wide, width, one, ROWS, width);
  say_floats(one, ROWS, "log_sum_exp width=%d", width);
  for (enum mk_act act = 0; act < MK_ACTS; act++) {
    mk_act_rows(act, act % 2 ? x : wide, width, y, ROWS, width);
    say_floats(y, size, "activation %d width=%d", (int)act, width);
    mk_gate_rows((struct mk_gate){.act = act}, x, width, add, width, y, ROWS, width);
    say_floats(y, size, "gate %d width=%d", (int)act, width);
  }
  mk_gate_rows((struct mk_gate){MK_SILU, 2, 1.702f}, x, width, add, width, y, ROWS, width);
  say_floats(y, size, "limited gate width=%d", width);
  mk_softcap_rows(30, wide, width, y, ROWS, width);
  say_floats(y, size, "softcap width=%d", width);
}

static void digest_rope(int pairs, int size, int traditional) {
  const int64_t positions[] = {0, 1, 1000, 70001, 10000019};
  enum { WIDTH = 5, HEADS = 3 };
  const size_t count = (size_t)HEADS * WIDTH * size;
  float *frequencies = floats(2 * (size_t)pairs, 0.0001f, 1), *tables = room((size_t)WIDTH * 2 * pairs), *y = room(count);
  for (int i = pairs; i < 2 * pairs; i++) frequencies[i] *= 0x1p-26f; /* the second half is what the first one lacks */
  mk_rope_table(frequencies, 0, pairs, positions, 1.25f, tables, WIDTH, WIDTH);
  say_floats(tables, (size_t)WIDTH * 2 * pairs, "rope table pairs=%d", pairs);
  const struct mk_heads heads = {floats(count, -3, 3), (ptrdiff_t)count, (ptrdiff_t)WIDTH * size, size, 1, HEADS, WIDTH, size};
  mk_rope_turn(heads, tables, 0, pairs, traditional, y);
  say_floats(y, count, "rope pairs=%d size=%d traditional=%d", pairs, size, traditional);
}

void digest_norms(void) {
  static const int widths[] = {1, 15, 16, 17, 64, 100, 768, 1027};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) digest_width(widths[i]);
  digest_rope(32, 64, 0);
  digest_rope(32, 64, 1);
  digest_rope(10, 48, 0);
  digest_rope(10, 48, 1);
}
