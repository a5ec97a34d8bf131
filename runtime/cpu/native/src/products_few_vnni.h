/* One row to eight by vpdpbusd. A register holds two words of each of eight outputs, so that two words of x, read once for all
 * lanes, meet a panel's outputs in two registers: to read a word takes as long as to multiply by it. 32 bytes of each output are
 * turned over at a time, in registers, and the next 32 while these are multiplied: one behind the other the core waits for both.
 * Sums are exact, so these are the bits of any other way.
 */
#pragma once
#include "products_tile.h"

enum { FEW = 8, PASS = 4 }; /* rows, at most; those of them whose sums stay in registers */

/* How often `few_vnni` calls for lines of something else while it goes over `bytes` of each output with so many rows. */
static int calls_of_row(int bytes, int rows) { return (bytes + 31) / 32 * (rows > PASS ? 2 : 1); }

/* Where 32 bytes of each output lie: the first one's, and how far from one to the next. */
struct lying {
  const char* first;
  size_t apart;
};

/* Those of a panel from `at` on, `bytes` of each, in `copies`: where fewer than 16 outputs are left, and where the last 32 bytes
 * would be read beyond the matrix. */
static __attribute__((noinline)) struct lying copied(const struct panel* p, size_t at, int bytes, char (*copies)[2 * MK_SLAB]) {
  for (int r = 0; r < 16; r++) memcpy(copies[r], p->rows[r] + at, (size_t)bytes);
  return (struct lying){copies[0], 2 * MK_SLAB};
}

/* A quarter of the outputs, i of 4: words[h][q] gets words 2 q and 2 q + 1 of outputs 2 h, 2 h + 1, and of every fourth behind these.
 * lines: what is asked for meanwhile. */
INLINE void turn_quarter(struct lying codes, const char* lines, const int i, vi words[2][4]) {
  const char *near = codes.first + i * codes.apart, *far = near + 8 * codes.apart;
  __asm__("" : "+r"(near), "+r"(far)); /* else GCC has, in memory, where each output lies */
  const vi a = vi_halves(near, near + 4 * codes.apart), b = vi_halves(far, far + 4 * codes.apart);
  bring_lines(lines + 128 * i, 2);
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

/* R rows, PASS at most, times one panel of a slab, of which only scales and biases are unpacked, added to sums. `block` is the
 * slab's. The lines of the panel that is `ahead` panels behind this one come into the cache. */
INLINE void few_vnni(const struct slab* s, const struct panel* p, size_t at, const char* x, size_t ldx, int k, float* sums, int ahead,
                     const int bits, const int fp4, const int block, const int R) {
  const int each = 256 / bits, in_block = block > each ? block / each : 1; /* elements of 32 bytes; of these in a block */
  const int parts = 8 / bits, step = 8 * parts;                            /* of a word; elements of two words */
  const int blocks = k / block, count = s->count / block, bytes = s->count * bits / 8, halved = s->per_group == 2;
  const char *from[PASS], *lines = line_of(p, at, ahead);
  const float* scales[PASS];
  char copies[16][2 * MK_SLAB];
  struct lying codes = {p->rows[0] + at, p->bytes / 16};
  const int even = p->rows[15] - p->rows[0] == (ptrdiff_t)(15 * codes.apart);
  if (!even || p->rows[15] + at + (bytes + 31) / 32 * 32 > p->end) codes = copied(p, at, bytes, copies);
  vf y[PASS];
  vi words[2][4], next[2][4], high[PASS][2], low[PASS][2]; /* sums by x's high bytes and its low ones */
  UNROLL for (int r = 0; r < R; r++) {
    from[r] = x + r * ldx + (size_t)s->first * 2;
    scales[r] = (const float*)(x + r * ldx + (size_t)(k + 31) / 32 * 64) + s->first / block;
    y[r] = vf_load(sums + r * MK_STRIP);
  }
  UNROLL for (int i = 0; i < 4; i++) turn_quarter(codes, lines, i, words);
  for (int b = 0, done = 0; b < count;) {
    UNROLL for (int of_block = 0; of_block < in_block; of_block++) {
      if (s->calls) call_some(s->calls, s->each);
      if ((done += 32) < bytes) codes.first += 32; /* else what is there is turned over once more, for nothing */
      lines += 512;
      UNROLL for (int q = 0; q < 4; q++) {
        const int e = of_block * each + q * step;
        turn_quarter(codes, lines, q, next);
        if (e % block == 0)
          UNROLL for (int r = 0; r < R; r++) high[r][0] = high[r][1] = low[r][0] = low[r][1] = vi_set(0);
        UNROLL for (int part = 0; part < parts; part++) {
          const int to = e / block * 2 * block + e % block + 8 * part;
          vi c[2];
          UNROLL for (int h = 0; h < 2; h++) c[h] = part_of(words[h][q], bits, fp4, part);
          UNROLL for (int r = 0; r < R; r++) {
            const vi above = vi_two(from[r] + to), below = vi_two(from[r] + to + block);
            UNROLL for (int h = 0; h < 2; h++) high[r][h] = dot_two(high[r][h], c[h], above);
            UNROLL for (int h = 0; h < 2; h++) low[r][h] = dot_two(low[r][h], c[h], below);
          }
        }
        if ((e + step) % block == 0 && (each <= block || b < count)) {
          const int group = b >> halved;
          const vf scale = vf_load(s->scales[0][group]), bias = vf_load(s->biases[0][group]);
          UNROLL for (int r = 0; r < R; r++) {
            y[r] = vf_fma(vi_float(by_outputs(high[r], low[r])), vf_mul(vf_set(scales[r][b]), scale), y[r]);
            y[r] = vf_fma(bias, vf_set(scales[r][b + blocks]), y[r]);
          }
          b++;
        }
      }
      UNROLL for (int h = 0; h < 2; h++) UNROLL for (int q = 0; q < 4; q++) words[h][q] = next[h][q];
    }
    UNROLL for (int r = 0; r < R; r++) from[r] += 2 * (block > each ? block : each);
  }
  UNROLL for (int r = 0; r < R; r++) vf_store(sums + r * MK_STRIP, y[r]);
}
