/* One row to eight with codes of 4 and 8 bits. 32 bytes of each output are turned over at a time, in registers, and the next 32 while
 * these are multiplied: one behind the other the core waits for both. Sums are exact, so these are the bits of any other way.
 */
#pragma once
#include "products/few_turned.h"
#include "products/tile.h"

/* How often `few_vnni` calls for lines of something else while it goes over `bytes` of each output with so many rows. */
static int calls_of_row(int bytes, int rows) { return (bytes + 31) / 32 * (rows > PASS ? 2 : 1); }

/* Those of a panel from `at` on, `bytes` of each, in `copies`: where fewer than 16 outputs are left, and where the last 32 bytes
 * would be read beyond the matrix. */
static __attribute__((noinline)) struct lying copied(const struct panel* p, size_t at, int bytes, char (*copies)[2 * MK_SLAB]) {
  for (int r = 0; r < 16; r++) memcpy(copies[r], p->rows[r] + at, (size_t)bytes);
  return (struct lying){copies[0], 2 * MK_SLAB};
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
  UNROLL for (int i = 0; i < 4; i++) {
    turn_quarter(codes, i, words);
    bring_lines(lines + 128 * i, 2);
  }
  for (int b = 0, done = 0; b < count;) {
    UNROLL for (int of_block = 0; of_block < in_block; of_block++) {
      if (s->calls) call_some(s->calls, s->each);
      if ((done += 32) < bytes) codes.first += 32; /* else what is there is turned over once more, for nothing */
      lines += 512;
      UNROLL for (int q = 0; q < 4; q++) {
        const int e = of_block * each + q * step;
        turn_quarter(codes, q, next);
        bring_lines(lines + 128 * q, 2);
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
