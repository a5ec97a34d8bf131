/* Whole blocks of experts: each expert's rows go through its matrices together, and what they are told is weighed. */
#include "experts/experts.h"
#include "products/forms.h"
#include "rows/activations.h"
#include "threads/room.h"
#include <stdlib.h>
#include <string.h>

static const struct experts* const columns[] = ALL_COLUMNS(experts);
static const struct activations* const activations[] = ALL_COLUMNS(activations);

enum {
  ROWS = 124, /* of one expert at a time: their sums are on the stack, twice for a gate */
  ALONE = 16, /* rows up to which one thread does what is done row by row: waking others takes longer */
};

struct part { /* rows of one expert, one behind the other in the order of experts */
  int expert, first, rows;
};

struct job {
  struct kernels by;
  const struct mk_experts* of;
  struct form open[2], close;
  int open_forms; /* 1 where both matrices take x in the same form */
  struct part* parts;
  int part_count;
  int *asked, *part_of, *place; /* in the order of experts: which of the `each` times `rows` places; its part. Of each place: where it stands in that order */
  const float *x, *weights;
  int rows, each;
  char *opened[2], *closing; /* rows in their forms, in the order of experts */
  float *inner, *answers, *y;
  struct block {
    void* at;
    size_t bytes;
  } held[8];
  int blocks;
};

static int strips(int n) { return (n + MK_STRIP - 1) / MK_STRIP; }

static void* must(size_t bytes) {
  void* at;
  if (posix_memalign(&at, 64, bytes ? bytes : 64)) abort(); /* as MLX does without memory, since nobody could say so from here */
  return at;
}

static void* hold(struct job* j, size_t bytes) {
  struct block* b = &j->held[j->blocks++];
  b->bytes = bytes, b->at = mk_take(&b->bytes);
  return b->at;
}

static void each_of(mk_chunk run, struct job* j, int count) {
  if (count > ALONE) mk_run(run, j, count);
  else
    for (int i = 0; i < count; i++) run(j, i);
}

/* By experts, each one's rows in their order, and no more than ROWS in a part. */
static void in_order(struct job* j, const int* chosen) {
  const int asked = j->rows * j->each, count = j->of->count;
  int* next = calloc((size_t)count + 1, sizeof(int)); /* where the next row of each expert goes */
  if (!next) abort();
  for (int i = 0; i < asked; i++) next[chosen[i] + 1]++;
  for (int e = 0; e < count; e++) next[e + 1] += next[e];
  for (int i = 0; i < asked; i++) {
    j->place[i] = next[chosen[i]]++;
    j->asked[j->place[i]] = i;
  }
  free(next);
  for (int at = 0; at < asked; at++) {
    const int expert = chosen[j->asked[at]];
    struct part* last = j->part_count ? &j->parts[j->part_count - 1] : NULL;
    if (!last || last->expert != expert || last->rows == ROWS) {
      last = &j->parts[j->part_count++];
      *last = (struct part){expert, at, 0};
    }
    last->rows++;
    j->part_of[at] = j->part_count - 1;
  }
}

static void prepare_open(void* with, int at) {
  const struct job* j = with;
  const struct part* p = &j->parts[j->part_of[at]];
  const int k = j->of->open->k;
  const float* x = j->x + (size_t)(j->asked[at] / j->each) * k;
  for (int f = 0; f < j->open_forms; f++)
    prepare(&j->by, j->open[f], x, k, at - p->first, p->rows, j->opened[f] + (size_t)p->first * j->open[f].ld);
}

static void prepare_close(void* with, int at) {
  const struct job* j = with;
  const struct part* p = &j->parts[j->part_of[at]];
  const int k = j->of->close->k;
  prepare(&j->by, j->close, j->inner + (size_t)at * k, k, at - p->first, p->rows, j->closing + (size_t)p->first * j->close.ld);
}

/* A strip of an expert's matrix for all rows of a part. */
static void products(const struct job* j, const struct mk_matrix* stack, struct form form, const char* x, const struct part* p, int n0, float* sums) {
  const struct mk_matrix w = mk_nth(stack, p->expert);
  const int n = w.n - n0 < MK_STRIP ? w.n - n0 : MK_STRIP;
  strip_of(&j->by, form, &w, n0, x + (size_t)p->first * form.ld, p->rows, 0, p->rows, sums, NULL);
  for (int r = 0; r < p->rows; r++) j->by.products->finish(&w, n0, n, sums + r * MK_STRIP, NULL, sums + r * MK_STRIP);
}

static void open_chunk(void* with, int c) {
  const struct job* j = with;
  const struct mk_experts* e = j->of;
  const int each = strips(e->open->n), n0 = c % each * MK_STRIP, n = e->open->n - n0 < MK_STRIP ? e->open->n - n0 : MK_STRIP;
  const struct part* p = &j->parts[c / each];
  _Alignas(64) float first[ROWS * MK_STRIP], second[ROWS * MK_STRIP];
  products(j, e->open, j->open[0], j->opened[0], p, n0, first);
  if (e->opens == 2) products(j, e->open + 1, j->open[1], j->opened[j->open_forms - 1], p, n0, second);
  for (int r = 0; r < p->rows; r++) {
    float *y = j->inner + (size_t)(p->first + r) * e->open->n + n0, *sums = first + r * MK_STRIP;
    if (e->opens == 2) activations[mk_column()]->gate(e->gate, sums, second + r * MK_STRIP, y, n);
    else activations[mk_column()]->act(e->gate.act, sums, y, n);
  }
}

static void close_chunk(void* with, int c) {
  const struct job* j = with;
  const struct mk_matrix* w = j->of->close;
  const int each = strips(w->n), n0 = c % each * MK_STRIP, n = w->n - n0 < MK_STRIP ? w->n - n0 : MK_STRIP;
  const struct part* p = &j->parts[c / each];
  _Alignas(64) float sums[ROWS * MK_STRIP];
  products(j, w, j->close, j->closing, p, n0, sums);
  for (int r = 0; r < p->rows; r++) memcpy(j->answers + (size_t)(p->first + r) * w->n + n0, sums + r * MK_STRIP, (size_t)n * sizeof(float));
}

static void weigh(void* with, int row) {
  const struct job* j = with;
  const int n = j->of->close->n;
  const float** answers = must((size_t)j->each * sizeof(float*));
  for (int i = 0; i < j->each; i++) answers[i] = j->answers + (size_t)j->place[row * j->each + i] * n;
  columns[mk_column()]->mix(j->weights + (size_t)row * j->each, answers, j->each, j->y + (size_t)row * n, n);
  free(answers);
}

void mk_answer(const struct mk_experts* by, const int* chosen, const float* weights, int each, const float* x, int rows, float* y) {
  const size_t asked = (size_t)rows * (size_t)each;
  if (!asked) return;
  struct job j = {.by = mk_kernels(), .of = by, .x = x, .weights = weights, .rows = rows, .each = each, .y = y};
  j.open[0] = form_of(&by->open[0]), j.close = form_of(by->close);
  if (by->opens == 2) j.open[1] = form_of(&by->open[1]);
  j.open_forms = by->opens == 2 && !same_form(j.open[0], j.open[1]) ? 2 : 1;
  mk_enter_room();
  j.parts = hold(&j, asked * sizeof(struct part));
  j.asked = hold(&j, 3 * asked * sizeof(int)), j.part_of = j.asked + asked, j.place = j.part_of + asked;
  in_order(&j, chosen);
  for (int f = 0; f < j.open_forms; f++) j.opened[f] = hold(&j, asked * j.open[f].ld);
  j.closing = hold(&j, asked * j.close.ld);
  j.inner = hold(&j, asked * (size_t)by->close->k * sizeof(float)), j.answers = hold(&j, asked * (size_t)by->close->n * sizeof(float));
  each_of(prepare_open, &j, (int)asked);
  mk_run(open_chunk, &j, j.part_count * strips(by->open->n));
  each_of(prepare_close, &j, (int)asked);
  mk_run(close_chunk, &j, j.part_count * strips(by->close->n));
  each_of(weigh, &j, rows);
  while (j.blocks) j.blocks--, mk_give(j.held[j.blocks].at, j.held[j.blocks].bytes);
  mk_leave_room();
}
