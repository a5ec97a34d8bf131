/* Residual streams of many rows, shared among threads. */
#include "rows/streams.h"
#include "threads/pool.h"

static const struct streams* const columns[] = ALL_COLUMNS(streams);

enum { PIECE = 4096 }; /* numbers per chunk: some microseconds */

enum what { MIX, CORRECT, JOIN };

struct job {
  enum what what;
  const float *x, *answer, *by;
  ptrdiff_t stride, answer_stride, by_stride, y_stride;
  float* y;
  int rows, count, width, place, each;
};

static void chunk(void* with, int chunk) {
  const struct job* j = with;
  const struct streams* of = columns[mk_column()];
  const int stop = (chunk + 1) * j->each < j->rows ? (chunk + 1) * j->each : j->rows;
  for (int r = chunk * j->each; r < stop; r++) {
    const float *x = j->x + r * j->stride, *answer = j->answer + r * j->answer_stride, *by = j->by + r * j->by_stride;
    float* y = j->y + r * j->y_stride;
    if (j->what == MIX) of->mix(x, by, y, j->count, j->width);
    else if (j->what == CORRECT) of->correct(x, answer, by, y, j->count, j->width, j->place);
    else of->join(x, answer, y, j->count, j->width);
  }
}

static void share(struct job* j) {
  const int row = j->count * j->width;
  if (j->rows <= 0 || row <= 0) return;
  j->each = PIECE / row > 1 ? PIECE / row : 1;
  mk_run(chunk, j, (j->rows + j->each - 1) / j->each);
}

void mk_mix_streams(const float* x, ptrdiff_t stride, const float* by, ptrdiff_t by_stride, float* y, ptrdiff_t y_stride, int rows,
                    int count, int width) {
  struct job j = {.what = MIX, .x = x, .stride = stride, .answer = x, .by = by, .by_stride = by_stride, .y = y, .y_stride = y_stride,
                  .rows = rows, .count = count, .width = width};
  share(&j);
}

void mk_correct_streams(const float* x, ptrdiff_t stride, const float* answer, ptrdiff_t answer_stride, const float* by,
                        ptrdiff_t by_stride, float* y, ptrdiff_t y_stride, int rows, int count, int width, int place) {
  struct job j = {.what = CORRECT, .x = x, .stride = stride, .answer = answer, .answer_stride = answer_stride, .by = by,
                  .by_stride = by_stride, .y = y, .y_stride = y_stride, .rows = rows, .count = count, .width = width, .place = place};
  share(&j);
}

void mk_join_streams(const float* x, ptrdiff_t stride, const float* answer, ptrdiff_t answer_stride, float* y, ptrdiff_t y_stride,
                     int rows, int count, int width) {
  struct job j = {.what = JOIN, .x = x, .stride = stride, .answer = answer, .answer_stride = answer_stride, .by = x, .y = y,
                  .y_stride = y_stride, .rows = rows, .count = count, .width = width};
  share(&j);
}
