/* Products of rows with packed matrices, read where they lie: y = x Wᵀ (+ b).
 *
 * A row of x becomes whole numbers of 16 bits with one scale per block (`quantize`); a block is 64 elements, or a
 * group where that is smaller. So sums inside a block are exact, whatever instruction and order a column has for
 * them, and each answer is one chain over the blocks in order:
 *
 *     y = fma(sum of code * x, scale of x * scale of w, y); y = fma(bias of w, scale of x * sum of x, y)
 *
 * Outputs lie in lanes and rows stand alone, so one row and many get the same bits.
 */
#pragma once
#include "rows/activations.h"
#include "simd/columns.h"
#include <stddef.h>
#include <stdint.h>

enum mk_kind {
  MK_AFFINE, MK_MXFP4, MK_NVFP4, /* as MLX packs it */
  MK_Q2_K, MK_Q3_K, MK_Q4_K, MK_Q5_K, MK_Q6_K, MK_IQ4_XS, MK_IQ4_NL, /* blocks as GGUF has them (`blocks.h`) */
  MK_MXFP8, MK_FLOATS
};
enum mk_type { MK_U8, MK_F16, MK_BF16, MK_F32 };

/* As MLX packs it: row-major, codes of a row one behind the other from the lowest bit on. Or blocks, or floats of `type`. */
struct mk_pairs;
struct mk_members;
struct mk_calls;
struct mk_matrix {
  const void* codes;  /* [n][k * bits / 8] bytes; of blocks [n][stride] */
  const void* scales; /* [n][k / group] of `type`: u8 is e8m0 for mxfp4 and mxfp8, and e4m3 for nvfp4; NULL for blocks */
  const void* biases; /* like scales; NULL but for MK_AFFINE */
  const void* added;  /* [n] of `added_type`, the vector b; or NULL */
  int n, k;           /* outputs, elements of a row; k is a multiple of the group */
  int kind, bits, group, type, added_type; /* bits: 8 for blocks, whose codes become bytes */
  int64_t stride; /* bytes from a row's codes to the next row's; only floats may lie apart */
  int across;     /* the outputs are columns, so that everything above is [k][n]: only in float32 (`floats.h`) */
  const struct mk_pairs* pairs;     /* what adapters add to its products (`pairs.h`), or NULL; */
  const struct mk_members* members; /* for the rows of a step that have some, or NULL */
};

enum { MK_STRIP = 32 }; /* outputs that are computed together */
enum { MK_SLAB = 512 }; /* elements of k that are unpacked at a time */

struct products {
  /* One row in the form that `strip` takes, mk_quantized_bytes(k, block) bytes. */
  void (*quantize)(const float* x, int k, int bits, int block, char* quantized);
  /* sums [rows][MK_STRIP]: the outputs n0 .. n0 + 31; those beyond w->n are arbitrary. calls (`lines.h`): what is asked for
   * meanwhile, or NULL. */
  void (*strip)(const struct mk_matrix* w, int n0, const char* x, size_t ldx, int rows, float* sums, struct mk_calls* calls);
  /* y[i] = sums[i] + added (+ residual[i]) for n <= MK_STRIP outputs from n0 on. */
  void (*finish)(const struct mk_matrix* w, int n0, int n, const float* sums, const float* residual, float* y);
};
DECLARE_INTEGER_COLUMNS(products, products);

static inline int mk_is_blocks(const struct mk_matrix* w) { return w->kind >= MK_Q2_K && w->kind <= MK_IQ4_NL; }

static inline int mk_block(const struct mk_matrix* w) { return w->group < 64 ? w->group : 64; }

#if defined(__aarch64__)
enum { MK_FACTORS = 3 };
#else
enum { MK_FACTORS = 2 };
#endif

/* Codes, twice a byte for each element; then one scale and one sum per block, and on ARM what `raised` adds (`meet.h`). Rows of many
 * sizes that are powers of two would fall on the same lines of the cache, hence an odd number of lines. */
static inline size_t mk_quantized_bytes(int k, int block) {
  const size_t bytes = (size_t)(k + 31) / 32 * 64 + (size_t)(k / block) * 4 * MK_FACTORS;
  return ((bytes + 63) / 64 | 1) * 64;
}

static inline int mk_float_bytes(int type) { return type == MK_F32 ? 4 : type == MK_U8 ? 1 : 2; }

/* Matrices alike lie one behind the other: the i-th. */
static inline struct mk_matrix mk_nth(const struct mk_matrix* first, int i) {
  struct mk_matrix w = *first;
  const int64_t rows = (int64_t)i * (w.across ? w.k : w.n), groups = w.group ? (w.across ? w.n : w.k) / w.group : 0;
  w.codes = (const char*)w.codes + rows * w.stride;
  if (w.scales) w.scales = (const char*)w.scales + rows * groups * mk_float_bytes(w.type);
  if (w.biases) w.biases = (const char*)w.biases + rows * groups * mk_float_bytes(w.type);
  if (w.added) w.added = (const char*)w.added + (int64_t)i * w.n * mk_float_bytes(w.added_type);
  return w;
}

#ifdef __cplusplus
extern "C" {
#endif
/* Is it multiplied by rows in float32? Packed integers are where that is asked for. */
int mk_in_floats(const struct mk_matrix* w);
void mk_use_float_rows(int always);
int mk_float_rows(void);
/* Where the product with one matrix goes: row r at y + r * ld. residual (rows as far apart as those of y, or NULL) is
 * added; it may be y itself. */
struct mk_output {
  float* y;
  size_t ld;
  const float* residual;
};
/* One x [rows][k], ldx floats from row to row, times `count` matrices of the same k. */
void mk_products(const struct mk_matrix* w, const struct mk_output* out, int count, const float* x, size_t ldx, int rows);
/* y [rows][n] = act(x w[0]) * (x w[1]), as mk_products and mk_gate_rows compute it. */
void mk_gated_products(const struct mk_matrix w[2], struct mk_gate kind, float* y, const float* x, size_t ldx, int rows);
#ifdef __cplusplus
}
#endif
