#include "experts/experts.h"
#include "products/forms.h"
#include <stdlib.h>

enum {
  ROWS = 252, /* of one matrix at a time: their sums are on the stack */
  ALONE = 16, /* rows up to which one thread prepares them all: waking others takes longer */
};

struct part { /* rows of one matrix */
  int first, rows;
};

struct job {
  struct kernels by;
  struct form form;
  const struct mk_matrix* stack;
  const struct mk_asked* rows;
  struct part* parts;
  int* part_of; /* of each row */
  char* x;      /* rows in their form */
  int strips;
};

static void prepare_row(void* with, int r) {
  const struct job* j = with;
  const struct part* p = &j->parts[j->part_of[r]];
  prepare(&j->by, j->form, j->rows[r].x, j->stack->k, r - p->first, p->rows, j->x + (size_t)p->first * j->form.ld);
}

/* A strip of one matrix, for all rows of a part. */
static void chunk(void* with, int c) {
  const struct job* j = with;
  const struct part* p = &j->parts[c / j->strips];
  const struct mk_asked* rows = j->rows + p->first;
  const struct mk_matrix w = mk_nth(j->stack, rows->matrix);
  const int n0 = c % j->strips * MK_STRIP, n = w.n - n0 < MK_STRIP ? w.n - n0 : MK_STRIP;
  _Alignas(64) float sums[ROWS * MK_STRIP];
  strip_of(&j->by, j->form, &w, n0, j->x + (size_t)p->first * j->form.ld, p->rows, 0, p->rows, sums, NULL);
  for (int r = 0; r < p->rows; r++) j->by.products->finish(&w, n0, n, sums + r * MK_STRIP, NULL, rows[r].y + n0);
}

static int cut(const struct mk_asked* rows, int count, struct part* parts, int* part_of) {
  int found = 0;
  for (int r = 0; r < count; r++) {
    if (!r || rows[r].matrix != rows[r - 1].matrix || parts[found - 1].rows == ROWS) parts[found++] = (struct part){r, 0};
    parts[found - 1].rows++;
    part_of[r] = found - 1;
  }
  return found;
}

void mk_ask(const struct mk_matrix* stack, const struct mk_asked* rows, int count) {
  if (!count) return;
  struct job j = {mk_kernels(), form_of(stack), stack, rows, NULL, NULL, NULL, (stack->n + MK_STRIP - 1) / MK_STRIP};
  j.parts = malloc((size_t)count * sizeof(struct part));
  j.part_of = malloc((size_t)count * sizeof(int));
  if (!j.parts || !j.part_of || posix_memalign((void**)&j.x, 64, (size_t)count * j.form.ld)) abort(); /* as MLX does */
  const int parts = cut(rows, count, j.parts, j.part_of);
  if (count <= ALONE)
    for (int r = 0; r < count; r++) prepare_row(&j, r);
  else
    mk_run(prepare_row, &j, count);
  mk_run(chunk, &j, parts * j.strips);
  free(j.parts), free(j.part_of), free(j.x);
}
