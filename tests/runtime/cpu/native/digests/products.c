#include "products.h"
#include "digests.h"
#include <string.h>

/* Scales as they are stored: small ones, of either sign where the type has one, never infinite or NaN. */
static void* scales(size_t count, enum mk_type type, int kind) {
  if (type == MK_F32) return floats(count, -0.02f, 0.02f);
  if (type == MK_U8) {
    uint8_t* codes = bytes(count);
    for (size_t i = 0; i < count; i++) codes[i] = kind == MK_MXFP4 ? (uint8_t)(116 + codes[i] % 8) : codes[i] % 0x70;
    return codes;
  }
  uint16_t* halves = (uint16_t*)bytes(2 * count);
  for (size_t i = 0; i < count; i++) {
    if (type == MK_F16) halves[i] = (uint16_t)((halves[i] & 0x83ff) | (any_bits() % 12) << 10); /* below 1/8 */
    else halves[i] = (uint16_t)((halves[i] & 0x807f) | (117 + any_bits() % 6) << 7);
  }
  return halves;
}

static void digest_matrix(int kind, int bits, int group, enum mk_type type, int n, int k, const char* name) {
  struct mk_matrix w = {.n = n, .k = k, .kind = kind, .bits = bits, .group = group, .type = type, .added_type = MK_F32};
  w.codes = bytes((size_t)n * k * bits / 8);
  w.scales = scales((size_t)n * (k / group), type, kind);
  if (kind == MK_AFFINE) w.biases = scales((size_t)n * (k / group), type, kind);
  w.added = floats((size_t)n, -1, 1);
  for (int rows = 1; rows <= 7; rows += 3) {
    const float* x = floats((size_t)rows * k, -2, 2);
    const struct mk_output out = {room((size_t)rows * n), (size_t)n, rows == 4 ? floats((size_t)rows * n, -1, 1) : NULL};
    mk_products(&w, &out, 1, x, (size_t)k, rows);
    say_floats(out.y, (size_t)rows * n, "product %s bits=%d group=%d n=%d k=%d rows=%d", name, bits, group, n, k, rows);
  }
}

void digest_products(void) {
  static const int widths[] = {1, 2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
  static const enum mk_type types[] = {MK_F32, MK_F16, MK_BF16};
  for (int b = 0; b < 7; b++)
    for (int g = 0; g < 3; g++) digest_matrix(MK_AFFINE, widths[b], groups[g], types[(b + g) % 3], 37, 384, "affine");
  for (int t = 0; t < 3; t++) digest_matrix(MK_AFFINE, 4, 64, types[t], 64, 1216, "affine, long");
  digest_matrix(MK_MXFP4, 4, 32, MK_U8, 37, 384, "mxfp4");
  digest_matrix(MK_NVFP4, 4, 16, MK_U8, 37, 384, "nvfp4");
}
