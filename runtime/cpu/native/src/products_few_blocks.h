/* One row or two with blocks of 256: codes go from memory through registers into sums, and nothing is kept of them. Words of 16
 * outputs are turned over between the dot products, which hide most of what that costs. From three rows on a slab is faster: in one
 * piece of code for more of them a block would be as long as the cache of instructions.
 */
#pragma once
#include "columns.h"
#include "products.h"

enum { FEW_WITH_BLOCKS = 2 };

struct few_blocks {
  /* As `strip` of `products.h` for FEW_WITH_BLOCKS rows at most, sums added to what is there; of every kind of blocks but MK_IQ4_NL. */
  void (*strip)(const struct mk_matrix* w, int n0, const char* x, size_t ldx, int rows, float* sums);
};
DECLARE_COLUMNS(few_blocks, few_blocks);
