/* Experts: matrices of a stack, each row by one of them, and whole blocks of experts whose answers are weighed. */
#pragma once
#include "products/products.h"

struct mk_asked {
  int matrix;
  const float* x;
  float* y;
};

/* down(inner): inner is gate(x open[0], x open[1]), or act(x open[0]) of a block with one matrix to open. */
struct mk_experts {
  const struct mk_matrix *open, *close; /* the first of each stack */
  int opens, count;                     /* matrices to open with: 1 or 2; experts */
  struct mk_gate gate;
};

/* What weighs answers: y = sum of weights[i] * answers[i], in order. */
struct experts {
  void (*mix)(const float* weights, const float* const* answers, int count, float* y, int n);
};
DECLARE_COLUMNS(experts, experts);

#ifdef __cplusplus
extern "C" {
#endif
/* rows: ascending by matrix. Each answer is what mk_products gives for its row and matrix alone, bit for bit. */
void mk_ask(const struct mk_matrix* stack, const struct mk_asked* rows, int count);
/* x [rows][k of open] -> y [rows][n of close]: the answers of the experts `chosen` [rows][each], times `weights`. A row's
 * bits are those of the row alone, and of its experts' products, gates and sum one after the other. */
void mk_answer(const struct mk_experts* by, const int* chosen, const float* weights, int each, const float* x, int rows, float* y);
#ifdef __cplusplus
}
#endif
