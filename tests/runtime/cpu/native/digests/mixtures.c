#include "digests.h"
#include "experts/experts.h"
#include "rows/streams.h"

enum { EXPERTS = 7, EACH = 2 };

static struct mk_matrix stack(int n, int k, int bits) {
  struct mk_matrix w = {.n = n, .k = k, .kind = bits == 32 ? MK_FLOATS : MK_AFFINE, .bits = bits, .type = MK_F32, .added_type = MK_F32};
  w.stride = (int64_t)k * bits / 8;
  w.codes = bits == 32 ? (const void*)floats((size_t)EXPERTS * n * k, -1, 1) : bytes((size_t)(EXPERTS * n * w.stride));
  if (bits < 32) {
    w.group = 64;
    w.scales = floats((size_t)EXPERTS * n * (k / 64), -0.02f, 0.02f), w.biases = floats((size_t)EXPERTS * n * (k / 64), -0.02f, 0.02f);
  }
  w.added = floats((size_t)EXPERTS * n, -1, 1);
  return w;
}

static void digest_experts(int opens, int bits, int rows) {
  enum { WIDTH = 192, INNER = 128 };
  const struct mk_matrix open[] = {stack(INNER, WIDTH, bits), stack(INNER, WIDTH, bits)}, close = stack(WIDTH, INNER, bits);
  const struct mk_experts by = {open, &close, opens, EXPERTS, {.act = MK_SILU}};
  const float *x = floats((size_t)rows * WIDTH, -2, 2), *weights = floats((size_t)rows * EACH, 0, 1);
  int* chosen = counts(rows * EACH, EXPERTS - 1);
  for (int i = 0; i < rows * EACH; i += EACH) /* none twice */
    if (chosen[i] == chosen[i + 1]) chosen[i + 1] = (chosen[i] + 1) % EXPERTS;
  float *y = room((size_t)rows * WIDTH), *alone = room((size_t)rows * INNER);
  mk_answer(&by, chosen, weights, EACH, x, rows, y);
  say_floats(y, (size_t)rows * WIDTH, "experts opens=%d bits=%d rows=%d", opens, bits, rows);
  struct mk_asked asked[64];
  for (int i = 0; i < rows; i++) asked[i] = (struct mk_asked){i * EXPERTS / rows, x + (size_t)i * WIDTH, alone + (size_t)i * INNER};
  mk_ask(open, asked, rows);
  say_floats(alone, (size_t)rows * INNER, "asked opens=%d bits=%d rows=%d", opens, bits, rows);
}

static void digest_streams(int count, int width) {
  enum { ROWS = 3 };
  const ptrdiff_t stride = (ptrdiff_t)count * width;
  const size_t size = (size_t)(ROWS * stride);
  const float *x = floats(size, -2, 2), *answer = floats((size_t)ROWS * width, -2, 2), *by = floats((size_t)ROWS * count * count, -1, 1);
  float* y = room(size);
  mk_mix_streams(x, stride, by, count * count, y, stride, ROWS, count, width);
  say_floats(y, size, "streams mixed count=%d width=%d", count, width);
  mk_correct_streams(x, stride, answer, width, by, count, y, stride, ROWS, count, width, count - 1);
  say_floats(y, size, "streams corrected count=%d width=%d", count, width);
  mk_join_streams(x, stride, answer, width, y, stride, ROWS, count, width);
  say_floats(y, size, "streams joined count=%d width=%d", count, width);
}

void digest_mixtures(void) {
  static const int bits[] = {4, 8, 3, 32}, rows[] = {1, 5, 40};
  for (int b = 0; b < 4; b++)
    for (int r = 0; r < 3; r++) digest_experts(1 + (b + r) % 2, bits[b], rows[r]);
  static const int widths[] = {16, 100, 33};
  for (int w = 0; w < 3; w++) digest_streams(w + 2, widths[w]);
}
