/* One row or two: codes go from memory through registers into sums, and nothing is kept of them. Blocks have products/few_blocks.h. */
#pragma once
#include "products/tile.h"
#if defined(__AVX512VNNI__)
#include "products/few_vnni.h" /* for most of them, and for more rows */
#elif defined(__AVX2__) || MK_SDOT
#include "products/few_along.h"
#else
enum { FEW = 2 };
#endif
#if !defined(__AVX512VNNI__)
static int calls_of_row(int bytes, int rows) { return (void)bytes, (void)rows, 0; } /* only with every slab */
#endif

struct few {
  vi high[2], low[2]; /* of x's bytes, where words hold bytes; twice, so that one sum need not wait for the other */
  vf y;
  const char* x;       /* codes that come next */
  const float* scales; /* of the block that they are of */
};

INLINE void add_word(struct few* f, vi codes, int block, const int t) {
  const struct words_of_x x = x_at(f->x, t, block);
  f->high[t & 1] = dot_high(f->high[t & 1], codes, x, t);
  if (WORD == 4) f->low[t & 1] = dot_low(f->low[t & 1], codes, x, t);
}

INLINE void end_block(struct few* f, int block, int blocks, vf scale, vf bias, const int lowered) {
  const vi sum = raised(both(vi_add(f->high[0], f->high[1]), vi_add(f->low[0], f->low[1])), f->scales, (size_t)blocks, lowered);
  f->x += 2 * block - block / WORD * APART; /* over the low bytes where they lie behind all high ones */
  f->y = vf_fma(vi_float(sum), vf_mul(vf_set(f->scales[0]), scale), f->y);
  f->y = vf_fma(bias, vf_set(f->scales[blocks]), f->y);
  f->scales++;
  f->high[0] = f->high[1] = f->low[0] = f->low[1] = vi_set(0);
}

/* R rows times one panel of a slab, of which only scales and biases are unpacked, added to sums. */
INLINE void few(const struct slab* s, const struct panel* p, size_t at, const char* x, size_t ldx, int k,
                float* sums, const int bits, const int fp4, const int R) {
  const int block = s->block, blocks = k / block, piece = fp4 ? 16 : 32, bytes = piece * bits / 8, step = step_of(bits) * 4 * bits;
  struct few rows[2];
  UNROLL for (int r = 0; r < R; r++) {
    const char* from = x + r * ldx;
    rows[r] = (struct few){.y = vf_load(sums + r * MK_STRIP), .x = from + (size_t)s->first * 2};
    rows[r].scales = (const float*)(from + (size_t)(k + 31) / 32 * 64) + s->first / block;
    rows[r].high[0] = rows[r].high[1] = rows[r].low[0] = rows[r].low[1] = vi_set(0);
  }
  for (int left = s->count * bits / 8, done = 0, b = 0; left > 0; left -= step, at += (size_t)step) {
    vi words[16];
    fetch(p, at, 1);
    vi_transpose(p->rows, at, left < step ? left : step, p->end, words);
    UNROLL for (int i = 0; i < step / bytes; i++) {
      if (i * bytes >= left) break;
      UNROLL for (int t = 0; t < piece / WORD; t++) {
        const vi codes = unpacked(words + i * bytes / 4, bits, fp4, t);
        UNROLL for (int r = 0; r < R; r++) add_word(&rows[r], codes, block, t);
      }
      UNROLL for (int r = 0; r < R; r++) rows[r].x += piece / WORD * APART;
      if ((done += piece) < block) continue;
      const int g = s->per_group == 2 ? b / 2 : b;
      const vf scale = vf_load(s->scales[0][g]), bias = vf_load(s->biases[0][g]);
      UNROLL for (int r = 0; r < R; r++) end_block(&rows[r], block, blocks, scale, bias, bits == 8);
      done = 0, b++;
    }
  }
  UNROLL for (int r = 0; r < R; r++) vf_store(sums + r * MK_STRIP, rows[r].y);
}
