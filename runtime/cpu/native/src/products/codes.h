/* A panel, 16 rows of a packed matrix, from its codes as they lie to words for vi_dot, outputs in lanes.
 *
 * Codes of a row are a stream of bits in words of 32, and a unit of 32 elements begins with a word in every format.
 * Widths that divide a word are masked out of it as they come, so a word of lanes holds elements that lie apart: x is
 * brought into the same order (`order_of`). Others are put into their natural order one by one.
 */
#pragma once
#include "products/meet.h"
#include "simd/lines.h"

enum { FIELD = 32 / WORD }; /* bits per element in a word of lanes */

/* e2m1, doubled to be whole, and 12 added to be positive: 0 .5 1 1.5 2 3 4 6 and the same below zero. */
enum { FP4_OFFSET = 12 };
static const uint8_t FP4[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

/* Where word t of a unit in lanes is among its codes: which word, and which of its parts. The same part of two words lies side by
 * side, so that two words of x meet it (`products/few_vnni.h`). */
struct place {
  int word, part;
};
INLINE struct place place_of(const int parts, const int t) {
  if (WORD == 4 && parts == 2) return (struct place){t / 4 * 2 + t % 2, t / 2 % 2};
  return (struct place){t / parts, t % parts};
}

/* order[p]: which element of a unit stands at p. */
static inline void order_of(int bits, uint8_t order[32]) {
  const int parts = 8 % bits ? 0 : FIELD / bits;
  for (int p = 0; p < 32; p++) {
    const int c = p % WORD;
    const struct place at = place_of(parts ? parts : 1, p / WORD);
    order[p] = (uint8_t)(parts ? at.word * (32 / bits) + at.part + c * parts : p);
  }
}

/* The same bits in every field of a word. */
#define FIELDS(value) vi_set((int32_t)((WORD == 4 ? 0x01010101u : 0x00010001u) * (value)))

INLINE vi field(const vi* words, const int bits, const int element, const int c) {
  const int bit = element * bits, w = bit / 32, from = bit % 32, to = c * FIELD;
  const vi mask = vi_set((int32_t)(((1u << bits) - 1) << to));
  vi a = from >= to ? vi_right(words[w], from - to) : vi_left(words[w], to - from);
  if (from + bits > 32) a = vi_or(vi_and(a, vi_set((int32_t)((1u << (32 - from + to)) - 1))), vi_left(words[w + 1], 32 - from + to));
  return vi_and(a, mask);
}

/* One part of a word. */
INLINE vi part_of(vi word, const int bits, const int fp4, const int part) {
  word = vi_right(word, part * bits);
  if (bits < FIELD) word = vi_and(word, FIELDS((1u << bits) - 1));
  if (bits == 8) word = vi_lowered(word);
  return fp4 ? vi_lookup(word, FP4) : word;
}

/* Word t of a unit's 32 / WORD. */
INLINE vi unpacked(const vi* words, const int bits, const int fp4, const int t) {
  const int parts = 8 % bits ? 0 : FIELD / bits;
  vi a;
  if (parts) {
    const struct place at = place_of(parts, t);
    a = part_of(words[at.word], bits, fp4, at.part);
  } else {
    a = field(words, bits, t * WORD, 0);
    UNROLL for (int c = 1; c < WORD; c++) a = vi_or(a, field(words, bits, t * WORD + c, c));
  }
  return vi_arranged(a);
}

struct panel {
  const char* rows[16]; /* ascending; the last one again for rows that are not there */
  const char* end;      /* of the matrix */
  size_t bytes;         /* of all of its rows */
};

static struct panel panel_of(const void* base, size_t row_bytes, int n0, int n) {
  struct panel p = {.end = (const char*)base + row_bytes * (size_t)n, .bytes = 16 * row_bytes};
  for (int r = 0; r < 16; r++) p.rows[r] = (const char*)base + row_bytes * (size_t)(n0 + r < n ? n0 + r : n - 1);
  return p;
}

/* Units whose words are transposed at once: as many blocks as fill 16 words. */
INLINE int step_of(const int bits) { return bits == 3 ? 4 : bits == 5 || bits == 6 ? 2 : 16 / bits; }

/* While bytes `at` to `at` + 64 of a panel's rows are worked on, the same share of the panel that is `ahead` panels
 * behind it comes into the cache, line after line as it lies. (By the order of use, some bytes
 * of each row in turn, half of what memory gives came out.) */
INLINE const char* line_of(const struct panel* p, size_t at, int ahead) { return p->rows[0] + 16 * at + p->bytes * (size_t)ahead; }
INLINE void fetch(const struct panel* p, size_t at, int ahead) { bring_lines(line_of(p, at, ahead), 16); }

/* `bytes` of codes of each row, from `at` on. */
INLINE void unpack(const struct panel* p, size_t at, int bytes, int ahead, const int bits, const int fp4, int32_t (*out)[LANES]) {
  const int step = step_of(bits), words_of_unit = 32 / WORD, all = step * words_of_unit, lines = step * bits; /* of sixteen rows */
  for (int left = bytes; left > 0; left -= step * bits * 4, at += (size_t)step * bits * 4, out += step * words_of_unit) {
    vi words[16];
    vi_transpose(p->rows, at, left < step * bits * 4 ? left : step * bits * 4, p->end, words);
    UNROLL for (int u = 0; u < step; u++) {
      if (u * bits * 4 >= left) break;
      UNROLL for (int t = 0; t < words_of_unit; t++) {
        const int word = u * words_of_unit + t, from = word * lines / all;
        bring_lines(line_of(p, at, ahead) + 64 * from, (word + 1) * lines / all - from);
        vi_store(out[word], unpacked(words + u * bits, bits, fp4, t));
      }
    }
  }
}

/* The float16 in the lower half of words; infinities aside, which no scale is: exact by the difference of the exponents'
 * offsets. */
INLINE vf half_of(vi bits) {
  const vf size = vf_mul(vi_as_float(vi_left(vi_and(bits, vi_set(0x7fff)), 13)), vf_set(0x1p112f));
  return vi_as_float(vi_or(vi_of_float(size), vi_left(vi_and(bits, vi_set(0x8000)), 16)));
}

/* Words of `bytes` of scales or biases -> one vector per group. */
INLINE void floats_of(const vi* w, int bytes, int type, int e8m0, float (*out)[LANES]) {
  for (int i = 0; 4 * i < bytes; i++) {
    if (type == MK_F32) vi_store(out[i], w[i]);
    if (type == MK_BF16) {
      vi_store(out[2 * i], vi_left(w[i], 16));
      vi_store(out[2 * i + 1], vi_and(w[i], vi_set((int32_t)0xffff0000)));
    }
    if (type == MK_F16)
      for (int h = 0; h < 2; h++) vf_store(out[2 * i + h], half_of(h ? vi_right(w[i], 16) : w[i]));
    if (type == MK_U8)
      for (int b = 0; b < 4; b++) {
        const vi bits = vi_and(vi_right(w[i], 8 * b), vi_set(255));
        if (e8m0) {
          vi_store(out[4 * i + b], vi_max(vi_left(bits, 23), vi_set(0x00400000))); /* 2^(bits - 127), also of 0 */
        } else {
          const vf size = vf_mul(vi_as_float(vi_left(vi_and(bits, vi_set(127)), 20)), vf_set(0x1p120f));
          vi_store(out[4 * i + b], vi_or(vi_of_float(size), vi_left(vi_and(bits, vi_set(128)), 24)));
        }
      }
  }
}
