#include "attention/kept_read.h"
#include "rows/quantize.h"

/* ---- from memory ---- */

enum { AHEAD = 64 }; /* vectors; on a Zen 4, GB/s on one thread: bf16, a key of 128 numbers, 7 -> 11 */

INLINE void read(const int form, const struct mk_span* s, int size, int count, float* out, int stride) {
  const int whole = size / LANES * LANES;
  for (int j = 0; j < count; j++, out += stride) {
    const struct vector x = vector_at(form, s, j);
    for (int g = 0, at = 0; at < whole; g++)
      for (int end = at + s->group < whole ? at + s->group : whole; at < end; at += LANES) {
        ask(form, s, &x, at, AHEAD);
        vf_store(out + at, numbers_at(form, &x, at, g));
      }
    if (whole < size) { /* never of packed ones */
      char rest[64] = {0};
      memcpy(rest, x.codes + bytes_of(form, whole), (size_t)bytes_of(form, size - whole));
      const struct vector behind = {rest, 0, 0};
      vf_store_some(out + whole, numbers_at(form, &behind, 0, 0), size - whole);
    }
    for (int i = size; i < stride; i++) out[i] = 0;
  }
}

static void load(const struct mk_span* s, int size, int count, float* out, int stride) {
  switch (s->form) {
    case MK_KEPT_F32: read(MK_KEPT_F32, s, size, count, out, stride); break;
    case MK_KEPT_BF16: read(MK_KEPT_BF16, s, size, count, out, stride); break;
    case MK_KEPT_F16: read(MK_KEPT_F16, s, size, count, out, stride); break;
    case MK_KEPT_Q8: read(MK_KEPT_Q8, s, size, count, out, stride); break;
    default: read(MK_KEPT_Q4, s, size, count, out, stride);
  }
}

/* ---- into memory ---- */

INLINE uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return bits;
}

/* To the nearest, ties to even; NaN stays NaN. */
INLINE uint16_t to_bf16(float f) {
  const uint32_t bits = bits_of(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
INLINE uint16_t to_f16(float f) {
  const uint32_t bits = bits_of(f), size = bits & 0x7fffffff;
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  if (size > 0x7f800000) return sign | 0x7e00;
  if (size >= 0x477ff000) return sign | 0x7c00;                                   /* rounds beyond 65504 */
  if (size < 0x38800000) return sign | (uint16_t)(bits_of(__builtin_fabsf(f) + 0.5f) - 0x3f000000); /* subnormal */
  return sign | (uint16_t)((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

static void store(const struct mk_lane* lane, int64_t slot, const float* x) {
  const struct mk_kept* k = lane->kept;
  char* p = lane->part[0] + slot * k->slot[0];
  uint16_t* half = (uint16_t*)p;
  switch (k->form) {
    case MK_KEPT_F32: memcpy(p, x, (size_t)k->size * 4); return;
    case MK_KEPT_BF16:
      for (int i = 0; i < k->size; i++) half[i] = to_bf16(x[i]);
      return;
    case MK_KEPT_F16:
      for (int i = 0; i < k->size; i++) half[i] = to_f16(x[i]);
      return;
    default: break;
  }
  float* scale = (float*)(lane->part[1] + slot * k->slot[1]);
  float* bias = (float*)(lane->part[2] + slot * k->slot[2]);
  const int bits = k->form == MK_KEPT_Q8 ? 8 : 4;
  for (int at = 0; at < k->size; at += k->group, scale++, bias++)
    COLUMN(quantize).group(x + at, MK_F32, k->group, bits, (uint8_t*)p + at * bits / 8, scale, bias);
}

const struct kept COLUMN(kept) = {load, store};
