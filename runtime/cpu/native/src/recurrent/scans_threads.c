/* Scans shared among threads: rows and channels are independent of each other, tokens are not. Compiled once. */
#include "recurrent/scans.h"
#include "threads/pool.h"

static const struct conv* const convs[] = ALL_COLUMNS(conv);
static const struct delta* const deltas[] = ALL_COLUMNS(delta);
static const struct spaces* const spaces[] = ALL_COLUMNS(spaces);
static const struct lru* const lrus[] = ALL_COLUMNS(lru);
static const struct gated_norm* const gated_norms[] = ALL_COLUMNS(gated_norm);

static int lesser(int a, int b) { return a < b ? a : b; }
static int parts(int whole, int part) { return (whole + part - 1) / part; }

/* What a chunk is to be worth waking a thread. */
enum { CONV_TOKENS = 32, CONV_CHANNELS = 1024, SELECTIVE_CHANNELS = 64, DELTA_VALUES = 64, NORM_FLOATS = 8192 };

/* A step without tokens has a state, too. */
static int conv_parts(const struct mk_conv* j) { return j->width ? parts(j->width, CONV_TOKENS) : 1; }

static void conv_chunk(void* with, int chunk) {
  const struct mk_conv* j = with;
  const int across = parts(j->channels, CONV_CHANNELS), along = conv_parts(j);
  const int channel = chunk % across * CONV_CHANNELS, first = chunk / across % along * CONV_TOKENS;
  convs[mk_column()]->piece(j, chunk / across / along, first, lesser(first + CONV_TOKENS, j->width), channel,
                            lesser(channel + CONV_CHANNELS, j->channels));
}

void mk_conv_rows(struct mk_conv j) {
  mk_run(conv_chunk, &j, j.rows * conv_parts(&j) * parts(j.channels, CONV_CHANNELS));
}

static void delta_chunk(void* with, int chunk) {
  const struct mk_delta* j = with;
  deltas[mk_column()]->head(j, chunk / j->heads, chunk % j->heads, 0, j->value_dim);
}

/* Where there are more threads than heads: what keys and gates come to is computed by each part for itself. */
static void delta_part(void* with, int chunk) {
  const struct mk_delta* j = with;
  const int across = parts(j->value_dim, DELTA_VALUES), value = chunk % across * DELTA_VALUES, head = chunk / across;
  deltas[mk_column()]->head(j, head / j->heads, head % j->heads, value, lesser(value + DELTA_VALUES, j->value_dim));
}

void mk_delta_rows(struct mk_delta j) {
  const int heads = j.rows * j.heads;
  if (heads >= mk_threads()) mk_run(delta_chunk, &j, heads);
  else mk_run(delta_part, &j, heads * parts(j.value_dim, DELTA_VALUES));
}

static void selective_chunk(void* with, int chunk) {
  const struct mk_selective* j = with;
  const int across = parts(j->channels, SELECTIVE_CHANNELS), channel = chunk % across * SELECTIVE_CHANNELS;
  spaces[mk_column()]->selective(j, chunk / across, channel, lesser(channel + SELECTIVE_CHANNELS, j->channels));
}

void mk_selective_rows(struct mk_selective j) {
  mk_run(selective_chunk, &j, j.rows * parts(j.channels, SELECTIVE_CHANNELS));
}

static void ssd_chunk(void* with, int chunk) {
  const struct mk_ssd* j = with;
  spaces[mk_column()]->ssd(j, chunk / j->heads, chunk % j->heads);
}

void mk_ssd_rows(struct mk_ssd j) { mk_run(ssd_chunk, &j, j.rows * j.heads); }

static void lru_chunk(void* with, int chunk) {
  const struct mk_lru* j = with;
  lrus[mk_column()]->head(j, chunk / j->heads, chunk % j->heads);
}

void mk_lru_rows(struct mk_lru j) { mk_run(lru_chunk, &j, j.rows * j.heads); }

static int norm_rows(const struct mk_gated_norm* j) { return j->width < NORM_FLOATS ? NORM_FLOATS / j->width : 1; }

static void norm_chunk(void* with, int chunk) {
  const struct mk_gated_norm* j = with;
  const int block = norm_rows(j), stop = lesser((chunk + 1) * block, j->rows * j->tokens);
  for (int r = chunk * block; r < stop; r++) gated_norms[mk_column()]->token(j, r / j->tokens, r % j->tokens);
}

void mk_gated_norm_rows(struct mk_gated_norm j) { mk_run(norm_chunk, &j, parts(j.rows * j.tokens, norm_rows(&j))); }
