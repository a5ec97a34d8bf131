/* What adapters add to products of many rows. Compiled once: the work is in the columns. */
#include "pairs.h"
#include "pool.h"
#include "room.h"
#include <string.h>

static const struct pairs* const columns[] = ALL_COLUMNS(pairs);

/* Some tokens of kin, at most MK_PAIR_TOKENS, as rows of the job. */
struct group {
  const struct mk_kin* kin;
  int count, at[MK_PAIR_TOKENS];
};

/* The next tokens of kin that are rows [first, stop) of the job; *next counts the kin's tokens. */
static struct group next_group(const struct mk_kin* kin, int tokens, int first, int stop, int* next) {
  struct group g = {kin, 0, {0}};
  for (; *next < kin->row_count * tokens && g.count < MK_PAIR_TOKENS; ++*next) {
    const int at = kin->rows[*next / tokens] * tokens + *next % tokens;
    if (at >= first && at < stop) g.at[g.count++] = at;
  }
  return g;
}

static int place_of(const struct mk_pairs* by, int adapter) { return adapter < by->known ? by->places[adapter] : -1; }

static size_t each_of(const struct mk_matrix* w) { return (size_t)w->members->most * (size_t)w->pairs->rank; }

size_t mk_narrow_floats(const struct mk_matrix* w, int rows) { return mk_has_pairs(w) ? each_of(w) * (size_t)rows : 0; }

struct job {
  const struct mk_narrow* all;
  const float* x;
  size_t ldx;
  int groups; /* of all kin, for one matrix */
};

static int groups_of(const struct mk_kin* kin, int tokens) { return (kin->row_count * tokens + MK_PAIR_TOKENS - 1) / MK_PAIR_TOKENS; }

static void narrow_group(const struct mk_narrow* to, const struct group* g, const float* rows, size_t ldx) {
  const struct mk_pairs* by = to->w->pairs;
  const size_t each = (size_t)by->k * (size_t)by->rank;
  const float* x[MK_PAIR_TOKENS];
  float* numbers[MK_PAIR_TOKENS];
  for (int m = 0; m < g->kin->count; m++) {
    const int place = place_of(by, g->kin->members[m].adapter);
    if (place < 0) continue;
    for (int t = 0; t < g->count; t++) {
      x[t] = rows + (size_t)g->at[t] * ldx;
      numbers[t] = to->numbers + (size_t)g->at[t] * each_of(to->w) + (size_t)(m * by->rank);
    }
    const char* down = (const char*)by->down + (size_t)place * each * (size_t)mk_float_bytes(by->down_type);
    columns[mk_column()]->narrow(down, by->down_type, ((size_t)by->adapters - (size_t)place) * each, by->k, by->rank, x, g->count,
                                 g->kin->members[m].scale, numbers);
  }
}

static void chunk(void* with, int c) {
  const struct job* j = with;
  const struct mk_narrow* to = &j->all[c / j->groups];
  if (!mk_has_pairs(to->w) || !to->w->pairs->down) return;
  const struct mk_kin* kin = to->w->members->kin;
  int which = c % j->groups;
  for (; which >= groups_of(kin, to->tokens); kin++) which -= groups_of(kin, to->tokens);
  int next = which * MK_PAIR_TOKENS;
  const struct group g = next_group(kin, to->tokens, 0, to->w->members->rows * to->tokens, &next);
  narrow_group(to, &g, j->x, j->ldx);
}

void mk_narrow_rows(struct mk_narrow* all, int count, const float* x, size_t ldx, int rows) {
  struct job j = {all, x, ldx, 0};
  const struct mk_members* who = NULL; /* of a step, so the same for every matrix */
  for (int m = 0; m < count; m++)
    if (mk_has_pairs(all[m].w)) who = all[m].w->members, all[m].tokens = rows / who->rows;
  for (int i = 0; who && i < who->kinds; i++) j.groups += groups_of(&who->kin[i], rows / who->rows);
  if (j.groups) mk_run(chunk, &j, j.groups * count);
}

static struct mk_term term_of(const struct mk_pairs* by, int place, float scale, int at) {
  struct mk_term term = {.own = by->own, .scale = scale, .rank = by->rank, .n = by->n, .type = by->up_type, .at = at};
  const size_t n = (size_t)by->n;
  if (by->up) term.up = (const char*)by->up + (size_t)place * (size_t)by->rank * n * (size_t)mk_float_bytes(by->up_type);
  if (by->factor) term.factor = by->factor + (size_t)place * n;
  if (by->bias) term.bias = by->bias + (size_t)place * n;
  return term;
}

static void widen_group(const struct mk_narrow* by, const struct group* g, int n0, int n, int first, float* y, size_t ldy) {
  const struct mk_pairs* pairs = by->w->pairs;
  const float *narrow[MK_PAIR_TOKENS], *base[MK_PAIR_TOKENS];
  float* to[MK_PAIR_TOKENS];
  float product[MK_PAIR_TOKENS][MK_STRIP]; /* what the factors of all adapters multiply */
  for (int t = 0; t < g->count; t++) {
    narrow[t] = by->numbers + (size_t)g->at[t] * each_of(by->w);
    base[t] = product[t], to[t] = y + (size_t)(g->at[t] - first) * ldy;
    if (pairs->factor) memcpy(product[t], to[t], sizeof(float) * (size_t)n);
  }
  for (int m = 0; m < g->kin->count; m++) {
    const int place = place_of(pairs, g->kin->members[m].adapter);
    if (place < 0) continue;
    const struct mk_term term = term_of(pairs, place, g->kin->members[m].scale, m * pairs->rank);
    columns[mk_column()]->widen(&term, n0, n, narrow, g->count, base, to);
  }
}

void mk_widen_rows(const struct mk_narrow* by, int n0, int n, int first, int rows, float* y, size_t ldy) {
  const struct mk_members* who = by->w->members;
  for (const struct mk_kin* kin = who->kin; kin < who->kin + who->kinds; kin++)
    for (int next = 0; next < kin->row_count * by->tokens;) {
      const struct group g = next_group(kin, by->tokens, first, first + rows, &next);
      if (g.count) widen_group(by, &g, n0, n, first, y, ldy);
    }
}

/* Room of one group of tokens: what it is narrowed to. */
struct few {
  const struct mk_matrix* w;
  const struct mk_output* out;
  const float* x;
  float* numbers;
  size_t ldx, each;
  int groups, tokens;
};

static void add_group(void* with, int c) {
  const struct few* j = with;
  const int m = c / j->groups;
  if (!mk_has_pairs(&j->w[m])) return;
  const struct mk_pairs* by = j->w[m].pairs;
  const struct mk_kin* kin = j->w[m].members->kin;
  int which = c % j->groups;
  for (; which >= groups_of(kin, j->tokens); kin++) which -= groups_of(kin, j->tokens);
  int next = which * MK_PAIR_TOKENS;
  const struct group g = next_group(kin, j->tokens, 0, j->w[m].members->rows * j->tokens, &next);
  const struct mk_narrow narrow = {&j->w[m], j->numbers + (size_t)m * j->each, j->tokens};
  if (by->down) narrow_group(&narrow, &g, j->x, j->ldx);
  const int step = by->factor ? MK_STRIP : by->n; /* factors multiply what a strip had before */
  for (int n0 = 0; n0 < by->n; n0 += step)
    widen_group(&narrow, &g, n0, by->n - n0 < step ? by->n - n0 : step, 0, j->out[m].y + n0, j->out[m].ld);
}

void mk_add_pairs(const struct mk_matrix* w, const struct mk_output* out, int count, const float* x, size_t ldx, int rows) {
  struct few j = {.w = w, .out = out, .x = x, .ldx = ldx};
  for (int m = 0; m < count; m++)
    if (mk_has_pairs(&w[m])) {
      const size_t each = mk_narrow_floats(&w[m], rows);
      if (each > j.each) j.each = each;
      j.tokens = rows / w[m].members->rows, j.groups = 0;
      for (int i = 0; i < w[m].members->kinds; i++) j.groups += groups_of(&w[m].members->kin[i], j.tokens);
    }
  size_t bytes = j.each * (size_t)count * sizeof(float);
  j.numbers = mk_take(&bytes);
  if (j.groups) mk_run(add_group, &j, j.groups * count);
  mk_give(j.numbers, bytes);
}

static void one_with_residual(const struct mk_matrix* w, const struct mk_output* out, const float* x, size_t ldx, int rows) {
  const size_t n = (size_t)w->n;
  size_t bytes = n * (size_t)rows * sizeof(float);
  float* sum = mk_take(&bytes);
  const struct mk_output aside = {sum, n, NULL};
  mk_products_with_pairs(w, &aside, 1, x, ldx, rows);
  for (size_t r = 0; r < (size_t)rows; r++)
    for (size_t i = 0; i < n; i++) out->y[r * out->ld + i] = out->residual[r * out->ld + i] + sum[r * n + i];
  mk_give(sum, bytes);
}

enum { MOST = 16 }; /* matrices at a time */

void mk_products_with_pairs(const struct mk_matrix* w, const struct mk_output* out, int count, const float* x, size_t ldx, int rows) {
  for (int m = 0, n; m < count; m += n) {
    struct mk_matrix bare[MOST];
    for (n = 0; n < MOST && m + n < count && !out[m + n].residual; n++) bare[n] = w[m + n], bare[n].pairs = NULL;
    if (n) {
      mk_products(bare, out + m, n, x, ldx, rows);
      mk_add_pairs(w + m, out + m, n, x, ldx, rows);
    } else {
      one_with_residual(&w[m], &out[m], x, ldx, rows), n = 1;
    }
  }
}

void mk_gated_with_pairs(const struct mk_matrix w[2], struct mk_gate kind, float* y, const float* x, size_t ldx, int rows) {
  const size_t n = (size_t)w->n;
  size_t bytes = n * (size_t)rows * sizeof(float);
  float* up = mk_take(&bytes);
  const struct mk_output out[] = {{y, n, NULL}, {up, n, NULL}};
  mk_products_with_pairs(w, out, 2, x, ldx, rows);
  mk_gate_rows(kind, y, w->n, up, w->n, y, rows, w->n);
  mk_give(up, bytes);
}
