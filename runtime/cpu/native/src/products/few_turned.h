/* Words of sixteen outputs for few rows by vpdpbusd. A register holds two words of each of eight outputs, so that two words of x,
 * read once for all lanes, meet a panel's outputs in two registers: to read a word takes as long as to multiply by it.
 */
#pragma once
#include "products/codes.h"

enum { FEW = 8, PASS = 4 }; /* rows, at most; those of them whose sums stay in registers */

/* Where 32 bytes of each output lie: the first one's, and how far from one to the next. */
struct lying {
  const char* first;
  size_t apart;
};

/* A quarter of the outputs, i of 4: words[h][q] gets words 2 q and 2 q + 1 of outputs 2 h, 2 h + 1, and of every fourth behind these. */
INLINE void turn_quarter(struct lying codes, const int i, vi words[2][4]) {
  const char *near = codes.first + i * codes.apart, *far = near + 8 * codes.apart;
  __asm__("" : "+r"(near), "+r"(far)); /* else GCC has, in memory, where each output lies */
  const vi a = vi_halves(near, near + 4 * codes.apart), b = vi_halves(far, far + 4 * codes.apart);
  const vi low = _mm512_shuffle_i32x4(a, b, 0x88), high = _mm512_shuffle_i32x4(a, b, 0xdd); /* halves of the 32 bytes */
  vi* to = words[i / 2];
  if (i % 2 == 0) {
    to[0] = low, to[2] = high;
  } else {
    to[1] = _mm512_unpackhi_epi64(to[0], low), to[0] = _mm512_unpacklo_epi64(to[0], low);
    to[3] = _mm512_unpackhi_epi64(to[2], high), to[2] = _mm512_unpacklo_epi64(to[2], high);
  }
}

/* sum + codes times the two words of x at `x`. */
INLINE vi dot_two(vi sum, vi codes, vi x) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(x)); /* see vi_dot */
  return sum;
}

/* What came of words side by side, by x's high bytes and its low ones, for both halves of the outputs -> by outputs. */
INLINE vi by_outputs(const vi high[2], const vi low[2]) {
  vf sum[2];
  UNROLL for (int h = 0; h < 2; h++) sum[h] = _mm512_castsi512_ps(vi_add(vi_left(high[h], 8), low[h]));
  const vf first = _mm512_shuffle_ps(sum[0], sum[1], 0x88), second = _mm512_shuffle_ps(sum[0], sum[1], 0xdd);
  return vi_add(vi_of_float(first), vi_of_float(second));
}
