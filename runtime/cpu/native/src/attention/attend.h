/* Attention over keys and values where they lie: softmax(q k^T scale + mask) v, never all scores at once.
 *
 * The order of every sum goes by absolute positions, so that a query's numbers do not depend on what shares its step,
 * on how its prompt was cut or on where memory keeps a position:
 *   a score    sixteen lanes over the numbers of a key (lane i: i, i + 16, ...), added by vf_sum's tree;
 *   a block    of MK_BLOCK positions from a multiple of it on: the greatest score seen so far is taken off, weights
 *              are added lane by lane, values in order of position. What a query does not see has no weight, and its value
 *              is not added, whatever it is: 0 times what is no number is none;
 *   a piece    of MK_PIECE positions from a multiple of it on, computed on its own; pieces are merged in order.
 * How queries are tiled and which thread takes which piece changes nothing.
 */
#pragma once
#include "attention/kept.h"

enum { MK_BLOCK = 64, MK_PIECE = 512 };

/* One row of the batch. Its query i stands at position start + i. */
struct mk_row {
  int64_t start;
  int64_t base; /* the position in slot 0 of its lane */
  int64_t edge; /* positions from here on lie apart, from slot 0 of `beside` on */
  int64_t stop; /* the position behind the last that is held */
  int count;    /* its queries; those behind are padding, answered by zeros */
};

struct mk_strided { /* floats [rows, heads, tokens, size], the last side by side; strides in floats */
  const float* data;
  ptrdiff_t row, head, token;
};

struct mk_attention {
  int rows, width, heads, groups; /* width: queries of the widest row */
  int size, value_size;           /* numbers of a key, and of a value */
  float scale, softcap;           /* softcap 0: none */
  int64_t before, ahead, chunk;   /* a query at p sees [p - before, p + ahead], inside its chunk of positions; 0: none */
  const struct mk_row* row;
  struct mk_strided queries;
  struct mk_kept keys, values;              /* in lanes */
  struct mk_kept keys_beside, values_beside; /* those of positions from `edge` on */
  int values_in_keys;                       /* values are the first numbers of the keys */

  const float* turns; /* [rows or 1, width, 2 * pairs], as in rope.h; NULL: nothing turns */
  ptrdiff_t turns_row;
  int pairs, traditional;

  const void* mask; /* column j is slot j */
  int mask_is_bool;
  ptrdiff_t mask_row, mask_head, mask_token, mask_key; /* in elements */
  const float* sinks;                                  /* one more logit per head */

  struct mk_strided new_keys, new_values; /* of the step's tokens, to be written; data NULL: nothing is */
  int writes_beside;                      /* into `beside`, not into the lanes */

  float* out; /* [rows, width, heads * value_size] */
};

/* The places of a block that a query sees. */
struct mk_sight {
  int from, to;
};

/* Queries of one group of heads that share keys, in the order (token, head), and the memory to answer them with. */
struct mk_tile {
  int row, group, first, count;
  float *queries, *scores, *factors, *turned_keys, *keys, *values;
  int64_t *from, *to; /* what each sees: later ones never see less far back, nor less far ahead */
  struct mk_sight* sights; /* of these, what lies in the block that is read */
};

/* For each query of a tile: its greatest score, sums of weights in lanes, weighted values. */
enum { MK_GREATEST = 0, MK_SUMS = 16, MK_VALUES = 32 };

struct attend {
  void (*write)(const struct mk_attention* a, int row, int token, float* scratch);
  void (*load_queries)(const struct mk_attention* a, struct mk_tile* t);
  /* What the tile's queries see of the positions [from, to), inside one piece. */
  void (*piece)(const struct mk_attention* a, const struct mk_tile* t, int64_t from, int64_t to, float* part);
  void (*merge)(const struct mk_attention* a, int count, float* sum, const float* part);
  void (*finish)(const struct mk_attention* a, const struct mk_tile* t, float* sum);
};
DECLARE_COLUMNS(attend, attend);

static inline int mk_whole(int size) { return (size + 15) / 16 * 16; }
static inline int mk_part_stride(const struct mk_attention* a) { return MK_VALUES + mk_whole(a->value_size); }

#ifdef __cplusplus
extern "C" {
#endif
void mk_attend(const struct mk_attention* a);
#ifdef __cplusplus
}
#endif
