/* Activations of many rows, shared among threads. */
#include "rows/activations.h"
#include "threads/pool.h"

static const struct activations* const columns[] = ALL_COLUMNS(activations);

enum { PIECE = 4096 }; /* numbers per chunk: some microseconds */

enum what { ACT, GATE, SOFTCAP, BEND };

struct job {
  enum what what;
  struct mk_gate kind;
  float cap;
  struct mk_bend bend;
  const float *x, *up;
  ptrdiff_t stride, up_stride;
  float* y;
  int rows, width, each; /* rows per chunk, where a row is one piece at most */
  int pieces;            /* of a row */
};

static void some(const struct job* j, int row, int from, int count) {
  const struct activations* by = columns[mk_column()];
  const float* x = j->x + row * j->stride + from;
  float* y = j->y + (ptrdiff_t)row * j->width + from;
  if (j->what == ACT) by->act(j->kind.act, x, y, count);
  else if (j->what == GATE) by->gate(j->kind, x, j->up + row * j->up_stride + from, y, count);
  else if (j->what == SOFTCAP) by->softcap(j->cap, x, y, count);
  else by->bend(j->bend, x, y, count);
}

static void chunk(void* with, int chunk) {
  const struct job* j = with;
  if (j->pieces > 1) {
    const int row = chunk / j->pieces, from = chunk % j->pieces * PIECE;
    some(j, row, from, j->width - from < PIECE ? j->width - from : PIECE);
    return;
  }
  const int stop = (chunk + 1) * j->each < j->rows ? (chunk + 1) * j->each : j->rows;
  for (int row = chunk * j->each; row < stop; row++) some(j, row, 0, j->width);
}

static void share(struct job* j) {
  if (j->rows <= 0 || j->width <= 0) return;
  j->pieces = (j->width + PIECE - 1) / PIECE;
  j->each = PIECE / j->width > 1 ? PIECE / j->width : 1;
  mk_run(chunk, j, j->pieces > 1 ? j->rows * j->pieces : (j->rows + j->each - 1) / j->each);
}

void mk_act_rows(enum mk_act act, const float* x, ptrdiff_t stride, float* y, int rows, int width) {
  struct job j = {.what = ACT, .kind = {act, 0, 0}, .x = x, .stride = stride, .y = y, .rows = rows, .width = width};
  share(&j);
}

void mk_gate_rows(struct mk_gate kind, const float* gate, ptrdiff_t gate_stride, const float* up, ptrdiff_t up_stride, float* y,
             int rows, int width) {
  struct job j = {.what = GATE, .kind = kind, .x = gate, .stride = gate_stride, .up = up, .up_stride = up_stride,
                  .y = y, .rows = rows, .width = width};
  share(&j);
}

void mk_softcap_rows(float cap, const float* x, ptrdiff_t stride, float* y, int rows, int width) {
  struct job j = {.what = SOFTCAP, .cap = cap, .x = x, .stride = stride, .y = y, .rows = rows, .width = width};
  share(&j);
}

void mk_bend_rows(struct mk_bend by, const float* x, ptrdiff_t stride, float* y, int rows, int width) {
  struct job j = {.what = BEND, .bend = by, .x = x, .stride = stride, .y = y, .rows = rows, .width = width};
  share(&j);
}
