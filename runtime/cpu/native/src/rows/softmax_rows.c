/* Softmax of many rows, and where each has its greatest, shared among threads. */
#include "rows/softmax.h"
#include "threads/pool.h"

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

struct places {
  const float* x;
  ptrdiff_t stride;
  int32_t* y;
  int width;
};

static void place_chunk(void* with, int row) {
  const struct places* j = with;
  j->y[row] = columns[mk_column()]->likeliest(j->x + row * j->stride, j->width);
}

void mk_likeliest(const float* x, ptrdiff_t stride, int32_t* y, int rows, int width) {
  struct places j = {x, stride, y, width};
  mk_run(place_chunk, &j, rows);
}
