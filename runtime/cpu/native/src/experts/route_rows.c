/* Routing of many rows, shared among threads. */
#include "experts/route.h"
#include "rows/activations.h"
#include "rows/softmax.h"
#include "threads/pool.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct softmax* const softmax[] = ALL_COLUMNS(softmax);
static const struct activations* const activations[] = ALL_COLUMNS(activations);

enum { EACH = 16 }; /* rows per chunk */

struct job {
  const struct mk_routing* by;
  const float* scores;
  int rows, *chosen;
  float* weights;
};

/* The `count` greatest of n, the greatest first. What is no number is greater than nothing. */
static void best_of(const float* values, int n, int count, int* found) {
  int have = 0;
  for (int i = 0; i < n; i++) {
    if (have == count && !(values[i] > values[found[have - 1]])) continue;
    int at = have < count ? have++ : have - 1;
    for (; at > 0 && values[i] > values[found[at - 1]]; at--) found[at] = found[at - 1];
    found[at] = i;
  }
}

/* Minus infinity in every group but the strongest. */
static void open_groups(const struct mk_routing* by, float* ranked, float* strength, int* open) {
  const int size = by->experts / by->groups, judges = size < by->judges ? size : by->judges;
  for (int g = 0; g < by->groups; g++) {
    int two[2];
    const float* of = ranked + g * size;
    best_of(of, size, judges, two);
    strength[g] = judges < 2 ? of[two[0]] : of[two[0]] + of[two[1]];
  }
  best_of(strength, by->groups, by->top_groups, open);
  for (int g = 0; g < by->groups; g++) {
    int is_open = 0;
    for (int i = 0; i < by->top_groups; i++) is_open |= open[i] == g;
    for (int e = g * size; !is_open && e < (g + 1) * size; e++) ranked[e] = -INFINITY;
  }
}

/* Each is the best of those that were not chosen before. room: three times the experts. */
static void route_near(const struct mk_routing* by, const float* scores, float* room, int* chosen, float* weights) {
  const int n = by->experts;
  float *open = room, *near = room + n, *shares = near + n;
  memcpy(open, scores, (size_t)n * sizeof(float));
  for (int i = 0; i < by->each; i++) {
    best_of(open, n, 1, chosen + i);
    const float top = open[chosen[i]];
    for (int e = 0; e < n; e++) {
      const float size = fabsf(scores[e]), most = size > top ? size : top;
      near[e] = (top - scores[e]) / most > by->nearness ? -INFINITY : open[e];
    }
    softmax[mk_column()]->row(near, shares, n);
    weights[i] = shares[chosen[i]];
    open[chosen[i]] = -INFINITY;
  }
}

static void route_row(const struct mk_routing* by, const float* scores, float* room, int* open, int* chosen, float* weights) {
  const int n = by->experts;
  float *gates = room, *ranked = room + n, *strength = ranked + n;
  if (by->gates == MK_GATES_NEAR) return route_near(by, scores, room, chosen, weights);
  if (by->gates == MK_GATES_SOFTMAX) softmax[mk_column()]->row(scores, gates, n);
  else if (by->gates == MK_GATES_SIGMOID) activations[mk_column()]->act(MK_SIGMOID, scores, gates, n);
  else memcpy(gates, scores, (size_t)n * sizeof(float));
  for (int e = 0; e < n; e++) ranked[e] = by->correction ? gates[e] + by->correction[e] : gates[e];
  if (by->groups != by->top_groups) open_groups(by, ranked, strength, open);
  best_of(ranked, n, by->each, chosen);
  for (int i = 0; i < by->each; i++) weights[i] = gates[chosen[i]];
  if (by->gates == MK_GATES_BEST) {
    memcpy(room, weights, (size_t)by->each * sizeof(float)); /* no more gates are than experts */
    softmax[mk_column()]->row(room, weights, by->each);
  }
  if (by->gates == MK_GATES_LATE) activations[mk_column()]->act(MK_SIGMOID, weights, weights, by->each);
  float sum = 0;
  for (int i = 0; i < by->each; i++) sum += weights[i];
  if (by->gates == MK_GATES_SIGMOID) sum += 1e-20f;
  if (sum < by->least) sum = by->least;
  for (int i = 0; i < by->each; i++) weights[i] = (by->normalize ? weights[i] / sum : weights[i]) * by->scale;
  for (int i = 0; by->shares && i < by->each; i++) weights[i] *= by->shares[chosen[i]];
}

static void chunk(void* with, int c) {
  const struct job* j = with;
  const struct mk_routing* by = j->by;
  const int stop = (c + 1) * EACH < j->rows ? (c + 1) * EACH : j->rows;
  float* room = malloc(((size_t)3 * (size_t)by->experts + (size_t)by->groups) * sizeof(float));
  int* open = malloc((size_t)by->top_groups * sizeof(int));
  if (!room || !open) abort(); /* as MLX does without memory, since nobody could say so from here */
  for (int r = c * EACH; r < stop; r++) {
    const size_t to = (size_t)r * (size_t)by->each;
    route_row(by, j->scores + (size_t)r * (size_t)by->experts, room, open, j->chosen + to, j->weights + to);
  }
  free(room), free(open);
}

void mk_route(const struct mk_routing* by, const float* scores, int rows, int* chosen, float* weights) {
  struct job j = {by, scores, rows, chosen, weights};
  mk_run(chunk, &j, (rows + EACH - 1) / EACH);
}
