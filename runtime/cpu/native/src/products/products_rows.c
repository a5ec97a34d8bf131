/* Products of many rows with several matrices, shared among threads. Compiled once: the work is in the columns. */
#include "products/forms.h"
#include "products/pairs.h"
#include "rows/activations.h"
#include "threads/held.h"
#include <string.h>

static const struct activations* const activations[] = ALL_COLUMNS(activations);

enum {
  ROWS = 512, /* at most at a time, for whose sums and codes there is memory: weights are unpacked anew for each of them */
  SPLIT = 64, /* the fewest rows for which weights are unpacked again so that another thread can work too */
  ALONE = 16, /* rows of x up to which one thread prepares them all: waking others takes longer */
};

struct prepared { /* rows, which several matrices may share */
  struct form form;
  char* rows;
};

/* Rows that are computed together, and those that have adapters. */
struct piece {
  int first, rows, group_count;
  const struct mk_group* groups;
};

struct job {
  struct kernels by;
  const struct mk_matrix* w;
  const struct mk_output* out;
  const float* x;
  size_t ldx;
  int count, rows, k;
  struct prepared* forms;
  int form_count;
  const int* form_of; /* of each matrix */
  int pieces, step;   /* rows are cut into pieces, and strips taken by `step` */
  const struct mk_gate* gate; /* the first matrix's answers are gates of the second one's, which are not given out */
  const struct mk_narrow* narrow; /* of each matrix; NULL where none has pairs */
  struct mk_group* groups;        /* room for one a row */
  int before;                     /* rows that were computed before these */
  struct piece by_piece[ROWS / SPLIT];
};

/* As much as ROWS of the widest product so far took. */
static _Thread_local struct mk_held for_rows, for_sums;

static void prepare_row(void* with, int r) {
  const struct job* j = with;
  for (int f = 0; f < j->form_count; f++)
    prepare(&j->by, j->forms[f].form, j->x + (size_t)r * j->ldx, j->k, r, j->rows, j->forms[f].rows);
}

static int strips(const struct mk_matrix* w) { return (w->n + MK_STRIP - 1) / MK_STRIP; }

/* The first n <= MK_STRIP of a strip's outputs. y: out[matrix]'s rows, or `sums` themselves. */
static void finish_rows(const struct job* j, const struct mk_matrix* w, int n0, int n, const struct piece* p, float* sums,
                        const struct mk_output* y) {
  for (int r = 0; r < p->rows; r++, sums += MK_STRIP) {
    const size_t at = y ? (size_t)(p->first + r) * y->ld + (size_t)n0 : 0;
    j->by.products->finish(w, n0, n < MK_STRIP ? n : MK_STRIP, sums, y && y->residual ? y->residual + at : NULL, y ? y->y + at : sums);
  }
}

/* `count` strips from `strip` on, those of sums one behind the other. y: out[matrix]'s rows, or `sums` themselves. */
static void compute(const struct job* j, int matrix, int strip, int count, const struct piece* p, float* sums, const struct mk_output* y) {
  struct mk_matrix w = j->w[matrix];
  const struct prepared* x = &j->forms[j->form_of[matrix]];
  const int n0 = strip * MK_STRIP, n = w.n - n0 < count * MK_STRIP ? w.n - n0 : count * MK_STRIP, paired = j->narrow && mk_has_pairs(&w);
  const size_t apart = (size_t)p->rows * MK_STRIP;
  for (int i = 0; i < n; i += MK_STRIP) {
    struct mk_calls calls; /* not set as a whole: that would take longer than to make some */
    calls.count = calls.done = 0;
    if (paired) mk_call_for_pairs(&calls, &j->narrow[matrix], p->groups, p->group_count, n0, n, i / MK_STRIP, (n + MK_STRIP - 1) / MK_STRIP);
    strip_of(&j->by, x->form, &w, n0 + i, x->rows, j->rows, p->first, p->rows, sums + (size_t)(i / MK_STRIP) * apart, paired ? &calls : NULL);
  }
  if (paired) {
    for (int i = 0; w.added && i < n; i += MK_STRIP) finish_rows(j, &w, n0 + i, n - i, p, sums + (size_t)(i / MK_STRIP) * apart, NULL);
    w.added = NULL;
    mk_widen_rows(&j->narrow[matrix], p->groups, p->group_count, n0, n, j->before + p->first, sums, MK_STRIP, apart);
  }
  for (int i = 0; i < n && (y || w.added); i += MK_STRIP) finish_rows(j, &w, n0 + i, n - i, p, sums + (size_t)(i / MK_STRIP) * apart, y);
}

static void compute_gated(const struct job* j, int strip, int count, const struct piece* p, float* sums) {
  float* up = sums + (size_t)ROWS * MK_STRIP;
  compute(j, 0, strip, count, p, sums, NULL);
  compute(j, 1, strip, count, p, up, NULL);
  for (int i = strip; i < strip + count; i++) {
    const int n0 = i * MK_STRIP, n = j->w->n - n0 < MK_STRIP ? j->w->n - n0 : MK_STRIP;
    for (int r = 0; r < p->rows; r++, sums += MK_STRIP, up += MK_STRIP)
      activations[mk_column()]->gate(*j->gate, sums, up, j->out->y + (size_t)(p->first + r) * j->out->ld + (size_t)n0, n);
  }
}

/* Strips that are computed together. */
static int unit_of(const struct job* j, const struct piece* p) {
  if (!j->narrow || !p->group_count) return 1;
  return p->rows * MK_UNIT <= ROWS ? MK_UNIT : ROWS / p->rows;
}

static void chunk(void* with, int c) {
  const struct job* j = with;
  const struct piece* p = &j->by_piece[c % j->pieces];
  const int start = c / j->pieces * j->step, unit = unit_of(j, p);
  float* sums = mk_hold(&for_sums, (size_t)2 * ROWS * MK_STRIP * 4);
  for (int m = 0, at = 0; m < (j->gate ? 1 : j->count); at += strips(&j->w[m++])) {
    const int end = at + strips(&j->w[m]) < start + j->step ? at + strips(&j->w[m]) : start + j->step;
    for (int s = start > at ? start : at; s < end; s += unit) {
      const int count = end - s < unit ? end - s : unit;
      if (j->gate) compute_gated(j, s, count, p, sums);
      else compute(j, m, s - at, count, p, sums, &j->out[m]);
    }
  }
}

/* Rows of each piece, in groups where they have adapters. */
static void cut(struct job* j) {
  const struct mk_narrow* any = NULL; /* adapters are those of the step, so the same for every matrix */
  for (int m = 0; j->narrow && m < j->count; m++)
    if (mk_has_pairs(&j->w[m])) any = &j->narrow[m];
  struct mk_group* groups = j->groups;
  for (int i = 0; i < j->pieces; i++) {
    const int first = (int)((long)j->rows * i / j->pieces), stop = (int)((long)j->rows * (i + 1) / j->pieces);
    const int count = any ? mk_group_rows(any->w->members, any->tokens, j->before + first, j->before + stop, groups) : 0;
    j->by_piece[i] = (struct piece){first, stop - first, count, groups};
    groups += count;
  }
}

static void some_rows(struct job* j) {
  int total = 0;
  for (int m = 0; m < (j->gate ? 1 : j->count); m++) total += strips(&j->w[m]);
  if (j->rows <= ALONE)
    for (int r = 0; r < j->rows; r++) prepare_row(j, r);
  else
    mk_run(prepare_row, j, j->rows);
  const int wanted = mk_threads() * 4; /* chunks; so that who comes late is given less */
  j->step = total / wanted > 1 ? total / wanted : 1;
  j->pieces = 1;
  while (total * j->pieces < wanted && j->rows / (j->pieces + 1) >= SPLIT) j->pieces++;
  cut(j);
  mk_run(chunk, j, (total + j->step - 1) / j->step * j->pieces);
}

enum { MOST = 16 }; /* matrices at a time */

static void all_rows(const struct mk_matrix* w, const struct mk_output* out, int count, const float* x, size_t ldx, int rows,
                     const struct mk_gate* gate) {
  if (!rows || !count) return;
  struct prepared forms[MOST];
  struct mk_output now[MOST];
  struct mk_narrow narrow[MOST];
  int which[MOST], form_count = 0;
  const int k = w[0].k, times = (rows + ROWS - 1) / ROWS, most = (rows + times - 1) / times;
  for (int m = 0; m < count; m++) {
    int f = 0;
    const struct form form = form_of(&w[m]);
    while (f < form_count && !same_form(forms[f].form, form)) f++;
    if (f == form_count) forms[form_count++] = (struct prepared){form, NULL};
    which[m] = f;
  }
  const int paired = mk_have_pairs(w, count);
  size_t bytes = 0, numbers = 0;
  for (int f = 0; f < form_count; f++) bytes += forms[f].form.ld * (size_t)most;
  for (int m = 0; m < count; m++) numbers += mk_narrow_floats(&w[m], rows);
  const size_t groups = paired ? (size_t)most * sizeof(struct mk_group) : 0;
  char* at = mk_hold(&for_rows, bytes + groups + numbers * sizeof(float));
  for (int f = 0; f < form_count; at += forms[f++].form.ld * (size_t)most) forms[f].rows = at;
  struct job j = {mk_kernels(), w, now, x, ldx, count, 0, k, forms, form_count, which, 1, 1, gate, paired ? narrow : NULL,
                  (struct mk_group*)at, 0, {{0}}};
  at += groups;
  for (int m = 0; paired && m < count; m++) {
    narrow[m] = (struct mk_narrow){&w[m], (float*)at, 0};
    at += mk_narrow_floats(&w[m], rows) * sizeof(float);
  }
  if (paired) mk_narrow_rows(narrow, count, x, ldx, rows);
  for (int r = 0; r < rows; r += j.rows) {
    j.before = r;
    j.rows = rows - r < most ? rows - r : most;
    j.x = x + (size_t)r * ldx;
    for (int m = 0; m < (gate ? 1 : count); m++) {
      const size_t to = (size_t)r * out[m].ld;
      now[m] = (struct mk_output){out[m].y + to, out[m].ld, out[m].residual ? out[m].residual + to : NULL};
    }
    some_rows(&j);
  }
}

void mk_products(const struct mk_matrix* w, const struct mk_output* out, int count, const float* x, size_t ldx, int rows) {
  for (; count > MOST; w += MOST, out += MOST, count -= MOST) all_rows(w, out, MOST, x, ldx, rows, NULL);
  all_rows(w, out, count, x, ldx, rows, NULL);
}

void mk_gated_products(const struct mk_matrix w[2], struct mk_gate kind, float* y, const float* x, size_t ldx, int rows) {
  const struct mk_output out = {y, (size_t)w->n, NULL};
  all_rows(w, &out, 2, x, ldx, rows, &kind);
}
