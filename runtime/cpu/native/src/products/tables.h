/* Rows of a table by their numbers, as float32. */
#pragma once
#include "products/products.h"
#ifdef __cplusplus
extern "C" {
#endif
/* y [count][k]. Numbers below zero count from the end, as MLX has them; those of no row get the nearest one. */
void mk_table_rows(const struct mk_matrix* table, const int64_t* ids, int count, float* y);
#ifdef __cplusplus
}
#endif
