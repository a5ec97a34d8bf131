/* Attention of a whole step, shared among threads: tiles of queries, and where those are few, pieces of the past. */
#include "attention/attend.h"
#include "threads/held.h"
#include "threads/pool.h"
#include <stdlib.h>
#include <string.h>

static const struct attend* const columns[] = ALL_COLUMNS(attend);

enum { TILE = 48, TOKENS = 16 }; /* queries of a tile; tokens that are written by one chunk */

struct job {
  const struct mk_attention* a;
  const struct attend* by;
  int tiles;     /* for each row and group */
  int pieces;    /* chunks of a tile; 1: a tile is one chunk */
  size_t stride; /* floats of a tile's part */
  float* parts;  /* [rows, groups, tiles, pieces] of them, where pieces > 1 */
};

/* As much as the widest heads so far took: neither a step nor its past makes a chunk longer. */
static float* scratch(size_t floats) {
  static _Thread_local struct mk_held for_chunk;
  return mk_hold(&for_chunk, floats * sizeof(float));
}

static void write_chunk(void* with, int chunk) {
  const struct job* j = with;
  const int chunks = (j->a->width + TOKENS - 1) / TOKENS, row = chunk / chunks, first = chunk % chunks * TOKENS;
  float* memory = scratch((size_t)mk_whole(j->a->size));
  for (int i = first; i < first + TOKENS && i < j->a->row[row].count; i++) j->by->write(j->a, row, i, memory);
}

/* Tile `which` with its queries in a thread's scratch; `spare` floats of it are left behind them, where *left points. */
static struct mk_tile tile_of(const struct job* j, int which, size_t spare, float** left) {
  const struct mk_attention* a = j->a;
  const int shared = a->heads / a->groups, size = mk_whole(a->size), value_size = mk_whole(a->value_size);
  struct mk_tile t = {.row = which / (a->groups * j->tiles), .group = which / j->tiles % a->groups, .first = which % j->tiles * TILE};
  const int all = a->row[t.row].count * shared;
  t.count = all - t.first < TILE ? all - t.first : TILE;
  if (t.count <= 0) {
    t.count = 0;
    return t;
  }
  float* p = scratch((size_t)TILE * (size + MK_BLOCK + 7) + (size_t)MK_BLOCK * (2 * size + value_size) + spare);
  t.queries = p, p += TILE * size;
  t.scores = p, p += TILE * MK_BLOCK;
  t.factors = p, p += TILE;
  t.from = (int64_t*)p, p += 2 * TILE;
  t.to = (int64_t*)p, p += 2 * TILE;
  t.sights = (struct mk_sight*)p, p += 2 * TILE;
  t.turned_keys = p, p += MK_BLOCK * size;
  t.keys = p, p += MK_BLOCK * size;
  t.values = p, p += MK_BLOCK * value_size;
  *left = p;
  j->by->load_queries(a, &t);
  return t;
}

/* What a tile sees. */
static int64_t seen_from(const struct mk_tile* t) { return t->from[0]; }
static int64_t seen_to(const struct mk_tile* t) { return t->to[t->count - 1]; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void start_sum(const struct mk_attention* a, int count, float* sum) {
  memset(sum, 0, (size_t)count * mk_part_stride(a) * 4);
  for (int i = 0; i < count; i++) sum[(size_t)i * mk_part_stride(a) + MK_GREATEST] = -__builtin_inff();
}

static void tile_chunk(void* with, int chunk) {
  const struct job* j = with;
  float* sum;
  const int all = j->a->rows * j->a->groups * j->tiles;
  struct mk_tile t = tile_of(j, all - 1 - chunk, 2 * j->stride, &sum); /* the last tiles see most: they come first */
  if (!t.count) return;
  float* part = sum + j->stride;
  start_sum(j->a, t.count, sum);
  for (int64_t from = seen_from(&t), to; from < seen_to(&t); from = to) {
    to = least(from - from % MK_PIECE + MK_PIECE, seen_to(&t));
    j->by->piece(j->a, &t, from, to, part);
    j->by->merge(j->a, t.count, sum, part);
  }
  j->by->finish(j->a, &t, sum);
}

static void piece_chunk(void* with, int chunk) {
  const struct job* j = with;
  float* left;
  struct mk_tile t = tile_of(j, chunk / j->pieces, 0, &left);
  if (!t.count) return;
  int64_t from = seen_from(&t);
  for (int i = chunk % j->pieces; i; i--) from = from - from % MK_PIECE + MK_PIECE;
  const int64_t to = least(from - from % MK_PIECE + MK_PIECE, seen_to(&t));
  if (from < to) j->by->piece(j->a, &t, from, to, j->parts + chunk * j->stride);
}

static void merge_chunk(void* with, int chunk) {
  const struct job* j = with;
  float* sum;
  struct mk_tile t = tile_of(j, chunk, j->stride, &sum);
  if (!t.count) return;
  start_sum(j->a, t.count, sum);
  const float* part = j->parts + (size_t)chunk * j->pieces * j->stride;
  for (int64_t from = seen_from(&t); from < seen_to(&t); from = from - from % MK_PIECE + MK_PIECE, part += j->stride)
    j->by->merge(j->a, t.count, sum, part);
  j->by->finish(j->a, &t, sum);
}

/* The most pieces that a tile of this step can look at. */
static int pieces_of(const struct mk_attention* a) {
  int64_t most = 0;
  for (int b = 0; b < a->rows; b++) {
    const struct mk_row* r = &a->row[b];
    int64_t from = r->start - a->before, to = r->start + r->count + a->ahead;
    if (a->chunk && from < r->start - r->start % a->chunk) from = r->start - r->start % a->chunk;
    if (from < r->base) from = r->base;
    if (to > r->stop) to = r->stop;
    const int64_t pieces = to > from ? (to + MK_PIECE - 1) / MK_PIECE - from / MK_PIECE : 0;
    most = pieces > most ? pieces : most;
  }
  return (int)most;
}

static void clear_padding(const struct mk_attention* a) {
  const size_t token = (size_t)a->heads * a->value_size;
  for (int b = 0; b < a->rows; b++)
    memset(a->out + ((size_t)b * a->width + a->row[b].count) * token, 0, (a->width - a->row[b].count) * token * 4);
}

void mk_attend(const struct mk_attention* a) {
  struct job j = {.a = a, .by = columns[mk_column()], .pieces = 1};
  if (a->new_keys.data) mk_run(write_chunk, &j, a->rows * ((a->width + TOKENS - 1) / TOKENS));
  clear_padding(a);
  const int queries = a->width * (a->heads / a->groups);
  j.tiles = (queries + TILE - 1) / TILE;
  j.stride = (size_t)(queries < TILE ? queries : TILE) * mk_part_stride(a);
  const int all = a->rows * a->groups * j.tiles, pieces = pieces_of(a);
  if (pieces > 1 && mk_threads() > 1 && all < 4 * mk_threads()) {
    j.pieces = pieces;
    j.parts = malloc((size_t)all * pieces * j.stride * 4);
  }
  if (!j.parts) {
    j.pieces = 1;
    mk_run(tile_chunk, &j, all);
    return;
  }
  mk_run(piece_chunk, &j, all * pieces);
  mk_run(merge_chunk, &j, all);
  free(j.parts);
}
