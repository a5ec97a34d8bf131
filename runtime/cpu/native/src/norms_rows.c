/* Norms of many rows, shared among threads. Compiled once: the work is in the columns. */
#include "norms.h"
#include "pool.h"

static const struct norms* const columns[] = ALL_COLUMNS(norms);

enum { BLOCK = 8 }; /* rows per chunk: fewer are not worth waking a thread */

struct rms_job {
  const float *x, *weight;
  float* y;
  int rows, width;
  float eps;
};

static void rms_chunk(void* with, int chunk) {
  const struct rms_job* j = with;
  const int stop = (chunk + 1) * BLOCK < j->rows ? (chunk + 1) * BLOCK : j->rows;
  for (int r = chunk * BLOCK; r < stop; r++) {
    const size_t at = (size_t)r * j->width;
    columns[mk_column()]->rms(j->x + at, j->weight, j->y + at, j->width, j->eps);
  }
}

void mk_rms_norm(const float* x, const float* weight, float* y, int rows, int width, float eps) {
  struct rms_job j = {x, weight, y, rows, width, eps};
  mk_run(rms_chunk, &j, (rows + BLOCK - 1) / BLOCK);
}
