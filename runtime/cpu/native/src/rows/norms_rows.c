/* Norms of many rows, shared among threads. Compiled once: the work is in the columns. */
#include "rows/norms.h"
#include "threads/pool.h"

static const struct norms* const columns[] = ALL_COLUMNS(norms);

enum { PIECE = 4096 }; /* numbers per chunk: fewer are not worth waking a thread */

enum what { RMS, LAYER, CUT };

struct job {
  enum what what;
  float eps, times;
  const float *x, *weight, *other; /* other: the bias of a layer norm; else what is added */
  ptrdiff_t stride, other_stride, y_stride;
  float* y;
  int rows, width, each; /* each: rows per chunk */
};

static void one(const struct job* j, int row) {
  const struct norms* by = columns[mk_column()];
  const float *x = j->x + row * j->stride, *other = j->other ? j->other + row * j->other_stride : NULL;
  float* y = j->y + row * j->y_stride;
  if (j->what == LAYER) by->layer(x, j->weight, other, y, j->width, j->eps);
  else if (j->what == RMS) by->rms(x, j->weight, other, y, j->width, j->eps);
  else by->cut(x, y, j->width, j->times);
}

static void chunk(void* with, int chunk) {
  const struct job* j = with;
  const int stop = (chunk + 1) * j->each < j->rows ? (chunk + 1) * j->each : j->rows;
  for (int row = chunk * j->each; row < stop; row++) one(j, row);
}

static void share(struct job* j) {
  j->each = PIECE / j->width > 1 ? PIECE / j->width : 1;
  mk_run(chunk, j, (j->rows + j->each - 1) / j->each);
}

void mk_rms_norm(const float* x, ptrdiff_t stride, const float* weight, const float* add, ptrdiff_t add_stride, float* y,
                 int rows, int width, float eps) {
  struct job j = {.eps = eps, .x = x, .stride = stride, .weight = weight, .other = add,
                  .other_stride = add_stride, .y = y, .y_stride = width, .rows = rows, .width = width};
  share(&j);
}

void mk_layer_norm(const float* x, ptrdiff_t stride, const float* weight, const float* bias, float* y, int rows, int width,
                   float eps) {
  struct job j = {.what = LAYER, .eps = eps, .x = x, .stride = stride, .weight = weight, .other = bias,
                  .y = y, .y_stride = width, .rows = rows, .width = width};
  share(&j);
}

void mk_cut_rows(const float* x, ptrdiff_t stride, float* y, ptrdiff_t y_stride, int rows, int width, float times) {
  struct job j = {.what = CUT, .times = times, .x = x, .stride = stride, .y = y, .y_stride = y_stride, .rows = rows, .width = width};
  share(&j);
}
