#include "kept.h"
#include "lines.h"
#include "quantize.h"
#include "simd.h"

/* ---- from memory ---- */

/* code * scale + bias in two roundings, as MLX's dequantize has it. */
INLINE void unpack(const struct mk_kept* k, const uint8_t* codes, const float* scale, const float* bias, float* out, int bits) {
  for (int at = 0; at < k->size; at += k->group, scale++, bias++)
    for (int i = at; i < at + k->group; i += LANES) {
      vf code = bits == 8 ? vf_bytes(codes + i) : vf_nibbles(codes + i / 2);
      vf_store(out + i, vf_add(vf_mul(code, vf_set(*scale)), vf_set(*bias)));
    }
}

INLINE void widen(const uint16_t* p, int size, float* out, int is_half) {
  int i = 0;
  for (; i + LANES <= size; i += LANES) vf_store(out + i, is_half ? vf_f16(p + i) : vf_bf16(p + i));
  if (i < size) {
    uint16_t rest[LANES] = {0};
    memcpy(rest, p + i, (size_t)(size - i) * 2);
    vf_store_some(out + i, is_half ? vf_f16(rest) : vf_bf16(rest), size - i);
  }
}

/* How many vectors further on memory is asked for. On a Zen 4, GB/s on one thread: bf16 with four queries to a key of 128
 * numbers 5.5 -> 8, with one 7 -> 11; q8 4 -> 5.5. Scales come by themselves. */
enum { AHEAD = 64 };

static void load(const struct mk_lane* lane, int64_t slot, int count, float* out, int stride) {
  const struct mk_kept* k = lane->kept;
  for (int i = 0; i < count; i++, slot++, out += stride) {
    const char* p = lane->part[0] + slot * k->slot[0];
    if (mk_to_second_cache)
      for (ptrdiff_t at = 0; at < k->slot[0]; at += 64) __builtin_prefetch(p + AHEAD * k->slot[0] + at, 0, 2);
    else __builtin_prefetch(p + 4096);
    switch (k->form) {
      case MK_KEPT_F32: memcpy(out, p, (size_t)k->size * 4); break;
      case MK_KEPT_BF16: widen((const uint16_t*)p, k->size, out, 0); break;
      case MK_KEPT_F16: widen((const uint16_t*)p, k->size, out, 1); break;
      default: {
        const float* scale = (const float*)(lane->part[1] + slot * k->slot[1]);
        const float* bias = (const float*)(lane->part[2] + slot * k->slot[2]);
        if (k->form == MK_KEPT_Q8) unpack(k, (const uint8_t*)p, scale, bias, out, 8);
        else unpack(k, (const uint8_t*)p, scale, bias, out, 4);
      }
    }
    for (int j = k->size; j < stride; j++) out[j] = 0;
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
