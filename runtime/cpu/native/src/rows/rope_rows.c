/* Rotation of many heads, shared among threads. */
#include "rows/rope.h"
#include "threads/pool.h"

static const struct rope* const columns[] = ALL_COLUMNS(rope);

enum { PIECE = 4096, SLOW_PIECE = 256 }; /* numbers per chunk: turned ones, and those of a table */

struct table_job {
  const float* frequencies;
  ptrdiff_t frequencies_stride;
  int pairs;
  const int64_t* positions;
  float factor;
  float* tables;
  int rows, width, each;
};

static void table_chunk(void* with, int chunk) {
  const struct table_job* j = with;
  const int stop = (chunk + 1) * j->each < j->rows ? (chunk + 1) * j->each : j->rows;
  for (int r = chunk * j->each; r < stop; r++)
    columns[mk_column()]->table(j->frequencies + r / j->width * j->frequencies_stride, j->pairs, j->positions[r], j->factor,
                                j->tables + (ptrdiff_t)r * 2 * j->pairs);
}

void mk_rope_table(const float* frequencies, ptrdiff_t frequencies_stride, int pairs, const int64_t* positions, float factor,
                   float* tables, int rows, int width) {
  struct table_job j = {frequencies, frequencies_stride, pairs, positions, factor, tables, rows, width, 1};
  if (pairs < SLOW_PIECE) j.each = SLOW_PIECE / pairs;
  mk_run(table_chunk, &j, (rows + j.each - 1) / j.each);
}

struct turn_job {
  struct mk_heads of;
  const float* tables;
  ptrdiff_t table_stride;
  int pairs, traditional;
  float* y;
  int rows, each; /* rows: heads times tokens, numbered as y has them */
};

static void turn_chunk(void* with, int chunk) {
  const struct turn_job* j = with;
  const struct mk_heads* h = &j->of;
  const int stop = (chunk + 1) * j->each < j->rows ? (chunk + 1) * j->each : j->rows;
  for (int r = chunk * j->each; r < stop; r++) {
    const int token = r % h->width, head = r / h->width % h->heads, b = r / h->width / h->heads;
    const float* x = h->x + b * h->batch_stride + head * h->head_stride + token * h->token_stride;
    const float* row = j->tables + b * j->table_stride + (ptrdiff_t)token * 2 * j->pairs;
    columns[mk_column()]->turn(x, row, j->y + (ptrdiff_t)r * h->size, j->pairs, h->size, j->traditional);
  }
}

void mk_rope_turn(struct mk_heads heads, const float* tables, ptrdiff_t table_stride, int pairs, int traditional, float* y) {
  struct turn_job j = {heads, tables, table_stride, pairs, traditional, y, heads.batch * heads.heads * heads.width, 1};
  if (heads.size < PIECE) j.each = PIECE / heads.size;
  mk_run(turn_chunk, &j, (j.rows + j.each - 1) / j.each);
}
