/* Rotation of heads: a table of cosines and sines, and the turn of one head by a row of it.
 *
 * A row of the table belongs to one position: `pairs` cosines, then `pairs` sines, both times a factor. Angles are
 * worked out in double from frequencies of 48 bits, so that positions of ten millions still turn by the right angle.
 */
#pragma once
#include "simd/columns.h"
#include <stddef.h>
#include <stdint.h>

struct rope {
  /* Frequency i, in radians per position, is frequencies[i] + frequencies[pairs + i]. */
  void (*table)(const float* frequencies, int pairs, int64_t position, float factor, float* row);
  /* One head of `size`, of which the first 2 * pairs turn: as halves (i, i + pairs) or, if traditional, as neighbours
   * (2i, 2i + 1). y may be x. */
  void (*turn)(const float* x, const float* row, float* y, int pairs, int size, int traditional);
};
DECLARE_COLUMNS(rope, rope);

/* Heads [batch, heads, width, size] as they lie, and the tables of their positions [batch or 1, width, 2 * pairs]. */
struct mk_heads {
  const float* x;
  ptrdiff_t batch_stride, head_stride, token_stride;
  int batch, heads, width, size;
};

#ifdef __cplusplus
extern "C" {
#endif
/* rows tables: row r belongs to positions[r] and to frequencies + r / width * frequencies_stride. */
void mk_rope_table(const float* frequencies, ptrdiff_t frequencies_stride, int pairs, const int64_t* positions, float factor,
                   float* tables, int rows, int width);
/* y: [batch, heads, width, size], dense. table_stride: floats from one of the batch to the next, 0 where all share. */
void mk_rope_turn(struct mk_heads heads, const float* tables, ptrdiff_t table_stride, int pairs, int traditional, float* y);
#ifdef __cplusplus
}
#endif
