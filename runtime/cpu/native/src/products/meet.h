/* Words of a block's codes times x: which of x's bytes a word meets, and what the sums of a block are.
 *
 * Where words hold bytes, x = 256 * high + low; its high bytes lie before its low ones, or, on ARM, eight of these behind eight of those,
 * so that a register has two words of each. sdot knows signed bytes alone: codes above 127 are moved down by 128 (`vi_lowered`), and as
 * many times the sum of x, which lies behind its scales and sums, is added in the end.
 */
#pragma once
#include "products/dot.h"

INLINE int32_t word(const char* p) {
  int32_t w;
  memcpy(&w, p, 4);
  return w;
}

#if MK_SDOT
enum { STEP = 2, APART = 8 }; /* words of x that are read together; bytes from one to the next */
struct words_of_x {
  int8x16_t bytes;
};
/* Word t of a block of `size` elements, and the one that is read with it. */
INLINE struct words_of_x x_at(const char* x, int t, int size) { return (void)size, (struct words_of_x){vld1q_s8((const int8_t*)x + t / 2 * 16)}; }
INLINE vi dot_high(vi sum, vi codes, struct words_of_x x, const int t) { return vi_dot_lane(sum, codes, x.bytes, t % 2); }
INLINE vi dot_low(vi sum, vi codes, struct words_of_x x, const int t) { return vi_dot_lane(sum, codes, x.bytes, 2 + t % 2); }
#else
enum { STEP = 1, APART = 4 };
struct words_of_x {
  int32_t high, low;
};
INLINE struct words_of_x x_at(const char* x, int t, int size) {
  return (struct words_of_x){word(x + 4 * t), WORD == 4 ? word(x + size + 4 * t) : 0};
}
INLINE vi dot_high(vi sum, vi codes, struct words_of_x x, const int t) { return (void)t, vi_dot(sum, codes, x.high); }
INLINE vi dot_low(vi sum, vi codes, struct words_of_x x, const int t) { return (void)t, vi_dot(sum, codes, x.low); }
#endif

/* What came of high bytes and of low ones; all in `high` where words hold numbers of 16 bits. */
INLINE vi both(vi high, vi low) { return WORD == 4 ? vi_add(vi_left(high, 8), low) : high; }

/* factors: x's scale of the block, and `blocks` numbers further on its sum. lowered: are its codes? */
INLINE vi raised(vi sum, const float* factors, size_t blocks, int lowered) {
  return SIGNED && lowered ? vi_add(sum, vi_set(word((const char*)(factors + 2 * blocks)))) : sum;
}
