/* Up to three rows by vpdpbusd: 64 bytes of each of a panel's outputs become words, outputs in lanes, in registers, and meet x's
 * words where these lie, one for all lanes. Sums are exact, so these are the bits of any other way.
 */
#pragma once
#include "products_tile.h"

enum { FEW = 3 };

/* sum + codes times the word of x at `x`, which is read within the product. */
INLINE vi dot_at(vi sum, vi codes, const char* x) {
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*(const int32_t*)x)); /* see vi_dot */
  return sum;
}

/* Where outputs' codes lie: the first one's, and how far from one to the next. */
struct lying {
  const char* first;
  size_t apart;
};

/* Copies of `bytes` of a panel's from `at` on, with zeros behind them. */
static __attribute__((noinline)) struct lying copied(const struct panel* p, size_t at, int bytes, char (*copies)[64]) {
  for (int r = 0; r < 16; r++) memcpy(memset(copies[r], 0, 64), p->rows[r] + at, (size_t)bytes);
  return (struct lying){copies[0], 64};
}

/* 64 bytes of each, and what `every_fourth` takes of them. lines: what is asked for meanwhile. */
INLINE void fours_of(struct lying codes, const char* lines, vi fours[16]) {
  const char* row = codes.first;
  const size_t apart = codes.apart;
  size_t thrice = 3 * apart;
  __asm__("" : "+r"(thrice)); /* else each row's place waits for the one before it */
  UNROLL for (int r = 0; r < 16; r += 4) {
    __asm__("" : "+r"(row)); /* else GCC has, in memory, where each row lies */
    const vi rows[4] = {vi_load(row), vi_load(row + apart), vi_load(row + 2 * apart), vi_load(row + thrice)};
    row += 4 * apart;
    bring_lines(lines + 64 * r, 4);
    turn_four(rows, fours + r);
  }
}

/* R rows times one panel of a slab, of which only scales and biases are unpacked, added to sums. `block` is the slab's. */
INLINE void few_vnni(const struct slab* s, const struct panel* p, size_t at, const char* x, size_t ldx, int k, float* sums,
                     const int bits, const int fp4, const int block, const int R) {
  const int blocks = k / block, count = s->count / block, together = 512 / (block * bits), in_block = 16 / together, parts = 8 / bits;
  const int chains = R == 1 || together == 4 ? 4 : 2; /* of a row's sums: in one, each would wait for the last */
  const size_t apart = p->bytes / 16;
  const int whole = p->rows[15] - p->rows[0] == (ptrdiff_t)(15 * apart); /* else there are fewer than 16 outputs */
  const char *from[FEW], *lines = line_of(p, at, 1), *first = p->rows[0] + at;
  const float* scales[FEW];
  char copies[16][64], rest[FEW][1024 / bits];
  vf y[FEW];
  UNROLL for (int r = 0; r < R; r++) {
    from[r] = x + r * ldx + (size_t)s->first * 2;
    scales[r] = (const float*)(x + r * ldx + (size_t)(k + 31) / 32 * 64) + s->first / block;
    y[r] = vf_load(sums + r * MK_STRIP);
  }
  for (int b = 0; b < count; b += together, at += 64, first += 64, lines += 1024) {
    const int bytes = count - b < together ? (count - b) * block * bits / 8 : 64;
    vi fours[16], high[FEW][4], low[FEW][4]; /* by x's high bytes and its low ones */
    struct lying codes = {first, apart};
    if (__builtin_expect(!whole || bytes < 64, 0)) {
      codes = copied(p, at, bytes, copies);
      if (bytes < 64) /* what is read behind these meets zeros */
        for (int r = 0; r < R; r++) from[r] = memcpy(rest[r], from[r], (size_t)bytes * 16 / bits);
    }
    fours_of(codes, lines, fours);
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int i = 0; i < chains; i++) high[r][i] = low[r][i] = vi_set(0);
    UNROLL for (int c = 0; c < 4; c++) {
      vi words[4];
      every_fourth(fours, c, words);
      UNROLL for (int i = 0; i < 4; i++) {
        const int w = 4 * i + c, chain = i * chains / 4;
        UNROLL for (int part = 0; part < parts; part++) {
          const vi codes = unpacked(words + i, bits, fp4, part);
          const int to = w / in_block * 2 * block + 4 * (w % in_block * parts + part);
          UNROLL for (int r = 0; r < R; r++) {
            high[r][chain] = dot_at(high[r][chain], codes, from[r] + to);
            low[r][chain] = dot_at(low[r][chain], codes, from[r] + to + block);
          }
        }
      }
    }
    UNROLL for (int r = 0; r < R; r++) {
      vi of[4];
      UNROLL for (int i = 0; i < chains; i++) of[i] = vi_add(vi_left(high[r][i], 8), low[r][i]);
      if (chains == 4 && together < 4) of[0] = vi_add(of[0], of[1]), of[1] = vi_add(of[2], of[3]);
      if (together == 1) of[0] = vi_add(of[0], of[1]);
      y[r] = with_blocks(y[r], s, of, b, count - b, scales[r], blocks, together);
      from[r] += 1024 / bits;
    }
  }
  UNROLL for (int r = 0; r < R; r++) vf_store(sums + r * MK_STRIP, y[r]);
}
