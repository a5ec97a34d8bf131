/* What adapters add to products of many rows. Compiled once: the work is in the columns. */
#include "products/pairs.h"
#include "simd/lines.h"
#include "threads/pool.h"
#include "threads/room.h"
#include <string.h>

enum { LINE = 64 }; /* bytes of the cache */

static const struct pairs* const columns[] = ALL_COLUMNS(pairs);

static int place_of(const struct mk_pairs* by, int adapter) { return adapter < by->known ? by->places[adapter] : -1; }

/* Of one adapter's second matrix, up to output n. A strip's numbers lie together: of rows 4096 bytes and more apart, what was called
 * for came too late (8 rows with one adapter beside none, on Zen 5: 1.043, and so 1.030). */
static size_t up_bytes(const struct mk_pairs* by, int n) {
  return (size_t)((n + MK_STRIP - 1) / MK_STRIP) * MK_STRIP * (size_t)by->rank * (size_t)mk_float_bytes(by->up_type);
}

static size_t each_of(const struct mk_matrix* w) { return (size_t)w->members->most * MK_HALVES * (size_t)w->pairs->rank; }

size_t mk_narrow_floats(const struct mk_matrix* w, int rows) { return mk_has_pairs(w) ? each_of(w) * (size_t)rows : 0; }

static int groups_of(const struct mk_kin* kin, int tokens) { return (kin->row_count * tokens + MK_PAIR_TOKENS - 1) / MK_PAIR_TOKENS; }

/* The next tokens of kin that are rows [first, stop); *next counts the kin's tokens. */
static struct mk_group next_group(const struct mk_kin* kin, int tokens, int first, int stop, int* next) {
  struct mk_group g = {kin, 0, {0}};
  for (; *next < kin->row_count * tokens && g.count < MK_PAIR_TOKENS; ++*next) {
    const int at = kin->rows[*next / tokens] * tokens + *next % tokens;
    if (at >= first && at < stop) g.at[g.count++] = at;
  }
  return g;
}

int mk_group_rows(const struct mk_members* who, int tokens, int first, int stop, struct mk_group* groups) {
  int count = 0;
  for (const struct mk_kin* kin = who->kin; kin < who->kin + who->kinds; kin++)
    for (int next = 0; next < kin->row_count * tokens;) {
      const struct mk_group g = next_group(kin, tokens, first, stop, &next);
      if (g.count) groups[count++] = g;
    }
  return count;
}

struct job {
  const struct mk_narrow* all;
  const float* x;
  size_t ldx;
  int groups; /* of all kin, for one matrix */
  int pieces; /* each of some halves */
};

/* The c-th group of a matrix's. */
static struct mk_group group_at(const struct mk_narrow* by, int c) {
  const struct mk_kin* kin = by->w->members->kin;
  for (; c >= groups_of(kin, by->tokens); kin++) c -= groups_of(kin, by->tokens);
  int next = c * MK_PAIR_TOKENS;
  return next_group(kin, by->tokens, 0, by->w->members->rows * by->tokens, &next);
}

static float* numbers_of(const struct mk_narrow* by, int row, int member) {
  return by->numbers + (size_t)row * each_of(by->w) + (size_t)(member * MK_HALVES * by->w->pairs->rank);
}

static void narrow_group(const struct mk_narrow* to, const struct mk_group* g, const float* rows, size_t ldx, int first, int halves) {
  const struct mk_pairs* by = to->w->pairs;
  const size_t each = (size_t)by->k * (size_t)by->rank;
  const float* x[MK_PAIR_TOKENS];
  float* numbers[MK_PAIR_TOKENS];
  for (int m = 0; m < g->kin->count; m++) {
    const int place = place_of(by, g->kin->members[m].adapter);
    if (place < 0) continue;
    for (int t = 0; t < g->count; t++) x[t] = rows + (size_t)g->at[t] * ldx, numbers[t] = numbers_of(to, g->at[t], m);
    const char* down = (const char*)by->down + (size_t)place * each * (size_t)mk_float_bytes(by->down_type);
    columns[mk_column()]->narrow(down, by->down_type, ((size_t)by->adapters - (size_t)place) * each, by->k, by->rank, x, g->count, first, halves,
                                 numbers);
  }
}

static int is_narrowed(const struct mk_matrix* w) { return mk_has_pairs(w) && w->pairs->down; }

static void chunk(void* with, int c) {
  const struct job* j = with;
  const int piece = c % j->pieces, halves = MK_HALVES / j->pieces, which = c / j->pieces;
  const struct mk_narrow* to = &j->all[which / j->groups];
  if (!is_narrowed(to->w)) return;
  const struct mk_group g = group_at(to, which % j->groups);
  narrow_group(to, &g, j->x, j->ldx, piece * halves, halves);
}

static void add_halves(const struct mk_narrow* by) {
  const struct mk_members* who = by->w->members;
  const int rank = by->w->pairs->rank;
  for (const struct mk_kin* kin = who->kin; kin < who->kin + who->kinds; kin++)
    for (int next = 0; next < kin->row_count * by->tokens; next++)
      for (int m = 0; m < kin->count; m++) {
        float* to = numbers_of(by, kin->rows[next / by->tokens] * by->tokens + next % by->tokens, m);
        if (place_of(by->w->pairs, kin->members[m].adapter) < 0) continue;
        for (int i = 0; i < rank; i++) to[i] = (to[i] + to[rank + i]) * kin->members[m].scale;
      }
}

void mk_narrow_rows(struct mk_narrow* all, int count, const float* x, size_t ldx, int rows) {
  struct job j = {all, x, ldx, 0, 1};
  const struct mk_members* who = NULL; /* of a step, so the same for every matrix */
  int narrowed = 0;
  for (int m = 0; m < count; m++) {
    if (mk_has_pairs(all[m].w)) who = all[m].w->members, all[m].tokens = rows / who->rows;
    narrowed += is_narrowed(all[m].w);
  }
  if (!narrowed) return;
  for (int i = 0; i < who->kinds; i++) j.groups += groups_of(&who->kin[i], rows / who->rows);
  if (j.groups * narrowed < 2 * mk_threads()) j.pieces = MK_HALVES;
  mk_run(chunk, &j, j.groups * count * j.pieces);
  for (int m = 0; m < count; m++)
    if (is_narrowed(all[m].w)) add_halves(&all[m]);
}

static struct mk_term term_of(const struct mk_pairs* by, int place, float scale, int at) {
  struct mk_term term = {.own = by->own, .scale = scale, .rank = by->rank, .type = by->up_type, .at = at};
  const size_t n = (size_t)by->n;
  if (by->up) term.up = (const char*)by->up + (size_t)place * up_bytes(by, by->n);
  if (by->factor) term.factor = by->factor + (size_t)place * n;
  if (by->bias) term.bias = by->bias + (size_t)place * n;
  return term;
}

void mk_call_for_pairs(struct mk_calls* calls, const struct mk_narrow* by, const struct mk_group* groups, int count, int n0, int n, int part,
                       int parts) {
  const struct mk_pairs* pairs = by->w->pairs;
  const size_t from = up_bytes(pairs, n0), bytes = up_bytes(pairs, n0 + n) - from;
  if (!pairs->up) return;
  for (int i = 0; i < count; i++)
    for (int m = 0; m < groups[i].kin->count; m++) {
      const int place = place_of(pairs, groups[i].kin->members[m].adapter);
      if (place < 0 || (i && groups[i].kin == groups[i - 1].kin)) continue;
      const char* at = (const char*)pairs->up + (size_t)place * up_bytes(pairs, pairs->n) + from;
      for (size_t line = bytes * (size_t)part / (size_t)parts; line < bytes * ((size_t)part + 1) / (size_t)parts; line += LINE)
        if (calls->count < MK_CALLS) calls->lines[calls->count++] = at + line;
        else bring_lines(at + line, 1);
    }
}

static void widen_group(const struct mk_narrow* by, const struct mk_group* g, int n0, int n, int first, float* y, size_t ldy, size_t apart) {
  const struct mk_pairs* pairs = by->w->pairs;
  const float *narrow[MK_PAIR_TOKENS], *base[MK_PAIR_TOKENS];
  float* to[MK_PAIR_TOKENS];
  float product[MK_PAIR_TOKENS][MK_UNIT * MK_STRIP]; /* what the factors of all adapters multiply */
  for (int t = 0; t < g->count; t++) {
    narrow[t] = numbers_of(by, g->at[t], 0);
    base[t] = product[t], to[t] = y + (size_t)(g->at[t] - first) * ldy;
    for (int i = 0; pairs->factor && i < n; i += MK_STRIP)
      memcpy(product[t] + i, to[t] + mk_in_strips(i, apart), sizeof(float) * (size_t)(n - i < MK_STRIP ? n - i : MK_STRIP));
  }
  for (int m = 0; m < g->kin->count; m++) {
    const int place = place_of(pairs, g->kin->members[m].adapter);
    if (place < 0) continue;
    const struct mk_term term = term_of(pairs, place, g->kin->members[m].scale, m * MK_HALVES * pairs->rank);
    columns[mk_column()]->widen(&term, n0, n, narrow, g->count, base, to, apart);
  }
}

void mk_widen_rows(const struct mk_narrow* by, const struct mk_group* groups, int count, int n0, int n, int first, float* y, size_t ldy,
                   size_t apart) {
  for (int i = 0; i < count; i++) widen_group(by, &groups[i], n0, n, first, y, ldy, apart);
}

/* Some strips of a product. */
struct strips {
  const struct mk_narrow* by;
  const struct mk_group* groups;
  int count;
  float* y;
};

enum { STRIPS = 8 }; /* for a thread at a time */

static void add_strips(void* with, int c) {
  const struct strips* j = with;
  const int n = j->by->w->n, stop = (c + 1) * STRIPS * MK_STRIP < n ? (c + 1) * STRIPS * MK_STRIP : n;
  for (int n0 = c * STRIPS * MK_STRIP; n0 < stop; n0 += MK_UNIT * MK_STRIP)
    mk_widen_rows(j->by, j->groups, j->count, n0, stop - n0 < MK_UNIT * MK_STRIP ? stop - n0 : MK_UNIT * MK_STRIP, 0, j->y + n0, (size_t)n,
                  MK_STRIP);
}

void mk_add_pairs(const struct mk_matrix* w, float* y, const float* x, int rows) {
  size_t numbers = mk_narrow_floats(w, rows) * sizeof(float), room = (size_t)rows * sizeof(struct mk_group);
  struct mk_group* groups = mk_take(&room);
  struct mk_narrow by = {w, mk_take(&numbers), rows / w->members->rows};
  mk_narrow_rows(&by, 1, x, (size_t)w->k, rows);
  struct strips j = {&by, groups, mk_group_rows(w->members, by.tokens, 0, rows, groups), y};
  if (j.count) mk_run(add_strips, &j, (w->n + STRIPS * MK_STRIP - 1) / (STRIPS * MK_STRIP));
  mk_give(by.numbers, numbers);
  mk_give(groups, room);
}
