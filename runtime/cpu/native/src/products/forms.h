/* The form that rows of x have for a matrix: whole numbers with scales (`products.h`), or floats (`floats.h`). Rows
 * that meet several matrices of one form are brought into it once. */
#pragma once
#include "products/floats.h"
#include "products/products.h"
#include "simd/lines.h"
#include "threads/pool.h"

struct form {
  int bits, block; /* of the matrix's codes; 0: floats */
  size_t ld;       /* bytes per row */
};

static inline struct form form_of(const struct mk_matrix* w) {
  if (mk_in_floats(w)) return (struct form){0, 0, mk_float_row_bytes(w->k)};
  return (struct form){w->bits, mk_block(w), mk_quantized_bytes(w->k, mk_block(w))};
}

static inline int same_form(struct form a, struct form b) { return a.bits == b.bits && a.block == b.block && a.ld == b.ld; }

/* What a process computes by. */
struct kernels {
  const struct products* products;
  const struct floats* floats;
};
struct kernels mk_kernels(void);

/* Row r of `rows` into its place among all of them. */
static inline void prepare(const struct kernels* by, struct form form, const float* x, int k, int r, int rows, char* all) {
  if (form.bits) by->products->quantize(x, k, form.bits, form.block, all + (size_t)r * form.ld);
  else by->floats->place(x, k, r, rows, all);
}

/* sums [rows][MK_STRIP] of the rows from `first` on, of `together` that were prepared. calls: as `products.h` has them. */
static inline void strip_of(const struct kernels* by, struct form form, const struct mk_matrix* w, int n0, const char* all, int together,
                            int first, int rows, float* sums, struct mk_calls* calls) {
  if (form.bits) {
    by->products->strip(w, n0, all + (size_t)first * form.ld, form.ld, rows, sums, calls);
  } else {
    if (calls) call_some(calls, calls->count);
    by->floats->strip(w, n0, all + (size_t)first * MK_DEEP * sizeof(float), together, rows, sums);
  }
}
