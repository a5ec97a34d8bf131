/* Products of rows with matrices of a stack, each row with one of them: the experts of a layer. */
#pragma once
#include "products.h"

struct mk_asked {
  int matrix;
  const float* x;
  float* y;
};

#ifdef __cplusplus
extern "C" {
#endif
/* rows: ascending by matrix. Each answer is what mk_products gives for its row and matrix alone, bit for bit. */
void mk_ask(const struct mk_matrix* stack, const struct mk_asked* rows, int count);
#ifdef __cplusplus
}
#endif
