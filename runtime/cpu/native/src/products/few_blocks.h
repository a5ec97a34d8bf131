/* Few rows with blocks of 256: they go from memory to sums, and no slab is kept of their codes. */
#pragma once
#include "products/products.h"
#include "simd/columns.h"

#if defined(__AVX512VNNI__)
enum { FEW_WITH_BLOCKS = 4 };
#else
enum { FEW_WITH_BLOCKS = 2 };
#endif

struct few_blocks {
  /* As `strip` of `products.h` for FEW_WITH_BLOCKS rows at most, sums added to what is there; of every kind of blocks but MK_IQ4_NL. */
  void (*strip)(const struct mk_matrix* w, int n0, const char* x, size_t ldx, int rows, float* sums);
};
DECLARE_INTEGER_COLUMNS(few_blocks, few_blocks);
