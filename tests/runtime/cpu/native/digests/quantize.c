#include "rows/quantize.h"
#include "digests.h"

/* Halves or bf16 of any finite value below 8. */
static uint16_t* halves(size_t count, enum mk_float type) {
  uint16_t* values = (uint16_t*)bytes(2 * count);
  for (size_t i = 0; i < count; i++)
    values[i] = type == MK_F16 ? (values[i] & 0xbfff) : (uint16_t)((values[i] & 0x807f) | (120 + any_bits() % 8) << 7);
  return values;
}

void digest_quantize(void) {
  static const int widths[] = {1, 2, 3, 4, 5, 6, 8};
  for (enum mk_float type = MK_F32; type <= MK_BF16; type++)
    for (int b = 0; b < 7; b++)
      for (int size = 32; size <= 128; size *= 2) {
        const size_t groups = 50, count = groups * (size_t)size, wide = type == MK_F32 ? 4 : 2;
        const void* x = type == MK_F32 ? (const void*)floats(count, -4, 4) : halves(count, type);
        uint8_t *codes = (uint8_t*)room(count), *scales = (uint8_t*)room(groups), *biases = (uint8_t*)room(groups);
        mk_quantize(x, type, groups, size, widths[b], codes, scales, biases);
        say_bytes(codes, count * widths[b] / 8, "quantize type=%d bits=%d group=%d codes", type, widths[b], size);
        say_bytes(scales, groups * wide, "quantize type=%d bits=%d group=%d scales", type, widths[b], size);
        say_bytes(biases, groups * wide, "quantize type=%d bits=%d group=%d biases", type, widths[b], size);
      }
}
