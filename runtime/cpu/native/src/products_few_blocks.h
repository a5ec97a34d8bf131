/* Rows with blocks of 256: codes go from memory through registers into sums, and nothing is kept of them. Words of 16
 * outputs are turned over between the dot products, which hide most of what that costs: with eight rows at a time a slab is
 * no faster, however many there are.
 */
#pragma once
#include "columns.h"
#include "products.h"

/* Rows at a time: those whose sums stay in registers. */
#if defined(__AVX512VNNI__)
enum { FEW_WITH_BLOCKS = 8 };
#else
enum { FEW_WITH_BLOCKS = 2 };
#endif

struct few_blocks {
  /* As `strip` of `products.h`, sums added to what is there; of every kind of blocks but MK_IQ4_NL. */
  void (*strip)(const struct mk_matrix* w, int n0, const char* x, size_t ldx, int rows, float* sums);
};
DECLARE_COLUMNS(few_blocks, few_blocks);
