#include "products/products.h"
#include "products/blocks.h"
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

static void digest(const struct mk_matrix* w, const char* name) {
  const int n = w->n, k = w->k;
  for (int rows = 1; rows <= 7; rows += rows < 4 ? 1 : 3) {
    const float* x = floats((size_t)rows * k, -2, 2);
    const struct mk_output out = {room((size_t)rows * n), (size_t)n, rows == 4 ? floats((size_t)rows * n, -1, 1) : NULL};
    mk_products(w, &out, 1, x, (size_t)k, rows);
    say_floats(out.y, (size_t)rows * n, "product %s bits=%d group=%d n=%d k=%d rows=%d", name, w->bits, w->group, n, k, rows);
  }
}

static void digest_matrix(int kind, int bits, int group, enum mk_type type, int n, int k, const char* name) {
  struct mk_matrix w = {.n = n, .k = k, .kind = kind, .bits = bits, .group = group, .type = type, .added_type = MK_F32};
  w.stride = (int64_t)k * bits / 8;
  w.codes = bytes((size_t)(n * w.stride));
  w.scales = scales((size_t)n * (k / group), type, kind);
  if (kind == MK_AFFINE) w.biases = scales((size_t)n * (k / group), type, kind);
  w.added = floats((size_t)n, -1, 1);
  digest(&w, name);
}

/* Outputs are columns. */
static void digest_across(int kind, int bits, int group, enum mk_type type, const char* name) {
  struct mk_matrix w = {.n = 384, .k = 37, .kind = kind, .bits = bits, .group = group, .type = type, .across = 1};
  w.stride = (int64_t)w.n * bits / 8;
  w.codes = bytes((size_t)(w.k * w.stride));
  w.scales = scales((size_t)w.k * (w.n / group), type, kind);
  if (kind == MK_AFFINE) w.biases = scales((size_t)w.k * (w.n / group), type, kind);
  digest(&w, name);
}

/* Blocks of any bytes, but for the float16 of their scales. */
static void digest_blocks(int kind, int at, int low_at, int n, int k, const char* name) {
  const struct mk_blocks is = mk_blocks_of(kind);
  struct mk_matrix w = {.n = n, .k = k, .kind = kind, .bits = 8, .group = is.group, .added_type = MK_F32};
  w.stride = k / is.weights * is.bytes;
  uint8_t* rows = bytes((size_t)(n * w.stride));
  for (int64_t block = 0; block < n * w.stride; block += is.bytes) {
    memcpy(rows + block + at, scales(1, MK_F16, kind), 2);
    if (low_at >= 0) memcpy(rows + block + low_at, scales(1, MK_F16, kind), 2);
  }
  w.codes = rows, w.added = floats((size_t)n, -1, 1);
  digest(&w, name);
}

void digest_products(void) {
  static const int widths[] = {1, 2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
  static const enum mk_type types[] = {MK_F32, MK_F16, MK_BF16};
  for (int b = 0; b < 7; b++)
    for (int g = 0; g < 3; g++) digest_matrix(MK_AFFINE, widths[b], groups[g], types[(b + g) % 3], 37, 384, "affine");
  for (int t = 0; t < 3; t++) digest_matrix(MK_AFFINE, 4, 64, types[t], 64, 1216, "affine, long");
  for (int b = 0; b < 7; b++) digest_matrix(MK_AFFINE, widths[b], 32, MK_BF16, 37, 352, "affine, odd");
  for (int b = 0; b < 7; b++) digest_across(MK_AFFINE, widths[b], 64, types[b % 3], "affine, across");
  digest_across(MK_MXFP4, 4, 32, MK_U8, "mxfp4, across");
  digest_matrix(MK_MXFP4, 4, 32, MK_U8, 37, 384, "mxfp4");
  digest_matrix(MK_NVFP4, 4, 16, MK_U8, 37, 384, "nvfp4");
  digest_blocks(MK_Q2_K, 80, 82, 37, 1280, "q2_k");
  digest_blocks(MK_Q3_K, 108, -1, 37, 1280, "q3_k");
  digest_blocks(MK_Q4_K, 0, 2, 37, 1280, "q4_k");
  digest_blocks(MK_Q5_K, 0, 2, 37, 1280, "q5_k");
  digest_blocks(MK_Q6_K, 208, -1, 37, 1280, "q6_k");
  digest_blocks(MK_IQ4_XS, 0, -1, 37, 1280, "iq4_xs");
  digest_blocks(MK_IQ4_NL, 0, -1, 37, 352, "iq4_nl");
}
