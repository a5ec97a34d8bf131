/* Tokens of many rows, shared among threads. */
#include "rows/softmax.h"
#include "sampling/draw.h"
#include "threads/pool.h"

static const struct draw* const columns[] = ALL_COLUMNS(draw);

struct job {
  const float* x;
  ptrdiff_t stride;
  const struct mk_wanted* wanted;
  const uint32_t (*keys)[2];
  int32_t* y;
  int columns, size;
};

static void chunk(void* with, int at) {
  const struct job* j = with;
  const float* x = j->x + at * j->stride;
  const int token = columns[mk_column()]->token(x, j->size, &j->wanted[at / j->columns], j->keys[at]);
  if (token < 0) mk_likeliest(x, j->size, &j->y[at], 1, j->size);
  else j->y[at] = token;
}

void mk_draw(const float* x, ptrdiff_t stride, const struct mk_wanted* wanted, const uint32_t (*keys)[2], int32_t* y, int rows,
             int columns, int size) {
  struct job j = {x, stride, wanted, keys, y, columns, size};
  mk_run(chunk, &j, rows * columns);
}
