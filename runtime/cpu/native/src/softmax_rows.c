/* Softmax of many rows, shared among threads. */
#include "pool.h"
#include "softmax.h"

static const struct softmax* const columns[] = ALL_COLUMNS(softmax);

enum { PIECE = 2048 }; /* numbers per chunk */

struct job {
  const float* x;
  ptrdiff_t stride;
  float* y;
  int rows, width, each, is_sum;
};

static void chunk(void* with, int chunk) {
  const struct job* j = with;
  const int stop = (chunk + 1) * j->each < j->rows ? (chunk + 1) * j->each : j->rows;
  for (int r = chunk * j->each; r < stop; r++) {
    const float* x = j->x + r * j->stride;
    if (j->is_sum) j->y[r] = columns[mk_column()]->log_sum(x, j->width);
    else columns[mk_column()]->row(x, j->y + (ptrdiff_t)r * j->width, j->width);
  }
}

static void share(struct job* j) {
  j->each = PIECE / j->width > 1 ? PIECE / j->width : 1;
  mk_run(chunk, j, (j->rows + j->each - 1) / j->each);
}

void mk_softmax(const float* x, ptrdiff_t stride, float* y, int rows, int width) {
  struct job j = {x, stride, y, rows, width, 1, 0};
  share(&j);
}

void mk_log_sum_exp(const float* x, ptrdiff_t stride, float* y, int rows, int width) {
  struct job j = {x, stride, y, rows, width, 1, 1};
  share(&j);
}
