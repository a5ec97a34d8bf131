/* One token drawn from a row of logits, as `runtime.sampling` says it: the best k, over the temperature, those of a typical
 * surprise, up to a mass of the likeliest and no less than a share of the best; then the greatest with Gumbel noise that a
 * key names. */
#pragma once
#include "simd/columns.h"
#include <stddef.h>
#include <stdint.h>

enum { MK_MOST_TOP_K = 1024 };

/* How one row wants its tokens drawn. */
struct mk_wanted {
  float temperature;
  int top_k;   /* at most MK_MOST_TOP_K; 0: all */
  float top_p; /* 1: all */
  float min_p; /* logarithm of the least share; -INFINITY: all */
  float typical; /* mass of those whose surprise is closest to what is expected, taken before the last two; 1: all */
};

struct draw {
  /* -1 where the greatest is no finite number. What is no number is never drawn. */
  int (*token)(const float* x, int size, const struct mk_wanted* by, const uint32_t key[2]);
};
DECLARE_COLUMNS(draw, draw);

#ifdef __cplusplus
extern "C" {
#endif
/* y[row][column] from x's rows * columns rows of `size` floats, `stride` apart; wanted[row], keys[row][column]. */
void mk_draw(const float* x, ptrdiff_t stride, const struct mk_wanted* wanted, const uint32_t (*keys)[2], int32_t* y, int rows,
             int columns, int size);
#ifdef __cplusplus
}
#endif
