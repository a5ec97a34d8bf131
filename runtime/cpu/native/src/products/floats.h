/* Products in float32: of matrices of floats, of mxfp8, and of any packed one where activations are to stay floats.
 *
 * y = sum over blocks of 64 weights, in order, of the block's own chain of fused multiply-adds over k, in order, from
 * zero. Outputs lie in lanes, so a row's sums are the same whatever is computed beside them. Weights are as `widen.h`
 * has them.
 */
#pragma once
#include "products/products.h"
#include "simd/columns.h"
#include <stddef.h>

enum { MK_DEEP = 64 }; /* weights per chain */

/* Rows of x that are placed together lie [block of k][row][MK_DEEP]: what is read one after the other, tiles of rows
 * with the weights of a block, lies in that order. Places behind the last k are never read. */
static inline size_t mk_float_row_bytes(int k) { return ((size_t)k + MK_DEEP - 1) / MK_DEEP * MK_DEEP * 4; }

struct floats {
  /* Row r of `rows` into its places. */
  void (*place)(const float* x, int k, int r, int rows, char* all);
  /* sums [rows][MK_STRIP]: the outputs n0 .. n0 + 31; those beyond w->n are arbitrary. x: the first row's place, and
   * `together` rows were placed. */
  void (*strip)(const struct mk_matrix* w, int n0, const char* x, int together, int rows, float* sums);
  /* A row of the matrix as w->k floats. */
  void (*row)(const struct mk_matrix* w, int64_t row, float* to);
};
DECLARE_COLUMNS(floats, floats);
