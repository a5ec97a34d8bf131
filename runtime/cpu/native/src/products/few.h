/* One row or two: codes go from memory through registers into sums, and nothing is kept of them. Blocks have products/few_blocks.h. */
#pragma once
#if defined(__AVX512VNNI__)
#include "products/few_vnni.h" /* for most of them, and for more rows */
#elif defined(__AVX2__)
#include "products/few_avx2.h"
#else
#include "products/tile.h"
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
  f->high[t & 1] = vi_dot(f->high[t & 1], codes, word(f->x + 4 * t));
  if (WORD == 4) f->low[t & 1] = vi_dot(f->low[t & 1], codes, word(f->x + block + 4 * t));
}

INLINE void end_block(struct few* f, int block, int blocks, vf scale, vf bias) {
  vi sum = vi_add(f->high[0], f->high[1]);
  if (WORD == 4) sum = vi_add(vi_left(sum, 8), vi_add(f->low[0], f->low[1])), f->x += block;
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
      UNROLL for (int r = 0; r < R; r++) rows[r].x += piece / WORD * 4;
      if ((done += piece) < block) continue;
      const int g = s->per_group == 2 ? b / 2 : b;
      const vf scale = vf_load(s->scales[0][g]), bias = vf_load(s->biases[0][g]);
      UNROLL for (int r = 0; r < R; r++) end_block(&rows[r], block, blocks, scale, bias);
      done = 0, b++;
    }
  }
  UNROLL for (int r = 0; r < R; r++) vf_store(sums + r * MK_STRIP, rows[r].y);
}
