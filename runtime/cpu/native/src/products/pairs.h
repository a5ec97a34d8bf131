/* What adapters add to products y0 = x Wᵀ + b of some rows: pairs of narrow matrices, DoRA's factors, biases.
 *
 *     y = y0;  y += (scale * (x down)) up;  y += scale * (factor * (y0 - b));  y += scale * bias
 *
 * one adapter of a row behind the other. Sums over k are four chains, even and odd k of each half, and those over ranks one, so
 * that a row's numbers depend neither on its company nor on zeros behind an adapter's own rank.
 */
#pragma once
#include "products/products.h"

/* Of all adapters behind one matrix. */
struct mk_pairs {
  const void *down, *up;            /* [adapters][k][rank] and [adapters][strips][rank][MK_STRIP]; NULL where none has a pair */
  const float *factor, *bias, *own; /* [adapters][n], or NULL; own: b, or NULL */
  const int* places;                /* [known]: where in these arrays an adapter is; -1 where it adds nothing */
  int adapters, known, k, n, rank;
  int down_type, up_type; /* of enum mk_type */
};

struct mk_member {
  int adapter; /* among the known ones */
  float scale;
};

/* Rows with the same adapters at the same scales, in the same order. */
struct mk_kin {
  const struct mk_member* members;
  const int* rows;
  int count, row_count;
};
struct mk_members {
  const struct mk_kin* kin; /* rows that have no adapter are in none of them */
  int kinds, rows;          /* rows: of the step, each with as many tokens as the others */
  int most;                 /* adapters of a row, at most */
};

enum { MK_PAIR_TOKENS = 8 }; /* that meet an adapter together */
enum { MK_UNIT = 4 };        /* strips whose products adapters are added to together, at most: what is read of `up` is longer then */

/* Where output i of a token is among strips that lie apart. */
static inline size_t mk_in_strips(int i, size_t apart) { return (size_t)(i / MK_STRIP) * apart + (size_t)(i % MK_STRIP); }

/* Tokens of kin, as rows of a product. */
struct mk_group {
  const struct mk_kin* kin;
  int count, at[MK_PAIR_TOKENS];
};

/* One adapter behind one matrix. */
struct mk_term {
  const void* up;
  const float *factor, *bias, *own;
  float scale;
  int rank, type; /* type: of `up` */
  int at;            /* where in a token's numbers those are that `up` multiplies */
};

/* Sums over k in two halves, of two chains each: halves can be had from different threads. A token's numbers are
 * [adapters of it][halves][rank]; added up they lie where the first half was. */
enum { MK_HALVES = 2 };

struct pairs {
  /* to[token] [half] [rank] = x[token] down, of `halves` from `first` on. readable: numbers from `down` on that may be read. */
  void (*narrow)(const void* down, int type, size_t readable, int k, int rank, const float* const* x, int tokens, int first, int halves,
                 float* const* to);
  /* y[token] [count] += what the term adds to the outputs from n0 on, y's strips `apart` floats from each other. base: the
   * same outputs of the product, one behind the other. */
  void (*widen)(const struct mk_term* term, int n0, int count, const float* const* narrow, int tokens, const float* const* base,
                float* const* y, size_t apart);
};
DECLARE_COLUMNS(pairs, pairs);

/* Rows through the first matrices of pairs. */
struct mk_narrow {
  const struct mk_matrix* w;
  float* numbers; /* of every row, mk_narrow_floats of one */
  int tokens;     /* of each row of the step */
};

static inline int mk_has_pairs(const struct mk_matrix* w) { return w->pairs && w->members; }

static inline int mk_have_pairs(const struct mk_matrix* w, int count) {
  for (int m = 0; m < count; m++)
    if (mk_has_pairs(&w[m])) return 1;
  return 0;
}

#ifdef __cplusplus
extern "C" {
#endif
size_t mk_narrow_floats(const struct mk_matrix* w, int rows);
/* Rows of x through the pairs of several matrices, as far as they have some; `numbers` has room for them. */
void mk_narrow_rows(struct mk_narrow* all, int count, const float* x, size_t ldx, int rows);
/* Rows [first, stop) in groups, at most as many as rows; how many there are. */
int mk_group_rows(const struct mk_members* who, int tokens, int first, int stop, struct mk_group* groups);
/* Adds to `calls` a part of what will be read for outputs [n0, n0 + n); what there is no room for is called for at once. */
void mk_call_for_pairs(struct mk_calls* calls, const struct mk_narrow* by, const struct mk_group* groups, int count, int n0, int n, int part,
                       int parts);
/* To y, outputs [n0, n0 + n) of the rows from `first` on, n <= MK_UNIT * MK_STRIP, what the adapters of some groups add. y: rows
 * are ldy floats from each other, strips `apart`. */
void mk_widen_rows(const struct mk_narrow* by, const struct mk_group* groups, int count, int n0, int n, int first, float* y, size_t ldy,
                   size_t apart);
/* To y, x's product with a matrix, what adapters add. */
void mk_add_pairs(const struct mk_matrix* w, float* y, const float* x, int rows);
#ifdef __cplusplus
}
#endif
