#include "sampling/draw.h"
#include "products/dot.h"
#include "threads/room.h"

enum { MANY = 64, VECTORS = MANY / LANES }; /* numbers that are looked at together */
static const float LEAST_NOISE = -2.85f, MOST_NOISE = 22.95f; /* bounds of `gumbel` below */

/* Logarithm of what is positive and not subnormal, to 1e-7 relative (Cephes' polynomial). */
INLINE vf vf_log(vf x) {
  const vi bits = vi_of_float(x);
  const vf whole = vi_float(vi_add(vi_right(bits, 23), vi_set(-127)));
  const vf within = vi_as_float(vi_or(vi_and(bits, vi_set(0x7fffff)), vi_set(0x3f800000))); /* [1, 2) */
  const vf root = vf_set(1.41421356f);
  const vf n = vf_if_less(within, root, whole, vf_add(whole, vf_set(1)));
  const vf t = vf_sub(vf_if_less(within, root, within, vf_mul(within, vf_set(0.5f))), vf_set(1)), z = vf_mul(t, t);
  vf p = vf_set(7.0376836292e-2f);
  p = vf_fma(p, t, vf_set(-1.1514610310e-1f));
  p = vf_fma(p, t, vf_set(1.1676998740e-1f));
  p = vf_fma(p, t, vf_set(-1.2420140846e-1f));
  p = vf_fma(p, t, vf_set(1.4249322787e-1f));
  p = vf_fma(p, t, vf_set(-1.6668057665e-1f));
  p = vf_fma(p, t, vf_set(2.0000714765e-1f));
  p = vf_fma(p, t, vf_set(-2.4999993993e-1f));
  p = vf_fma(p, t, vf_set(3.3333331174e-1f));
  vf y = vf_fma(n, vf_set(-2.12194440e-4f), vf_mul(vf_mul(p, z), t));
  y = vf_fma(z, vf_set(-0.5f), y);
  return vf_fma(n, vf_set(0.693359375f), vf_add(t, y));
}

INLINE uint32_t mixed(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

/* Uniform noise of some ids, as runtime/sampling/noise.py has it. */
INLINE void uniform(const int32_t* ids, const uint32_t key[2], float* v) {
  for (int i = 0; i < MANY; i++)
    v[i] = (float)mixed((mixed((uint32_t)ids[i]) ^ key[0]) * key[1]) * (0x1p-32f * (1 - 0x1p-22f)) + 0x1p-33f;
}

/* No less than `gumbel` of the same, at a tenth of its cost: -log(-log(1 - v)) <= -log(v), and the bits of a float, as a
 * number, rise along its logarithm in straight lines that lie below it. */
INLINE vf gumbel_at_most(vf v) {
  return vf_fma(vf_sub(vf_set(127), vf_mul(vi_float(vi_of_float(v)), vf_set(0x1p-23f))), vf_set(0.6931472f), vf_set(1e-3f));
}

/* -log(-log(1 - v)): see noise.py. */
INLINE vf gumbel(vf v) {
  const vf u = vf_min(vf_sub(vf_set(1), v), vf_set(1 - 0x1p-24f));
  return vf_sub(vf_set(0), vf_log(vf_mul(vf_log(u), vf_div(v, vf_sub(u, vf_set(1))))));
}

/* What is drawn from: logits of the ids 0, 1, 2 ..., or of those that are given. */
struct drawn_from {
  const float* x;
  const int32_t* ids; /* NULL: their places */
  int size;
  float temperature;
  float lowest, most; /* of the values, which are logits over the temperature: no other ones count */
  float least, above; /* values below the one, or not above the other, are out */
};

/* MANY values from `first` on, and the greatest of them; -INFINITY for what is out and behind the end. */
INLINE float values_of(const struct drawn_from* d, int first, float* v) {
  const vf out = vf_set(-INFINITY), over = vf_set(d->temperature), least = vf_set(d->least), above = vf_set(d->above);
  const vf greatest = vf_set(d->most);
  vf most = out;
  for (int i = 0; i < VECTORS; i++) {
    const int at = first + i * LANES, count = d->size - at;
    vf value = out;
    if (count >= LANES) value = vf_div(vf_load(d->x + at), over);
    else if (count > 0) {
      float rest[LANES];
      for (int k = 0; k < LANES; k++) rest[k] = k < count ? d->x[at + k] : -INFINITY;
      value = vf_div(vf_load(rest), over);
    }
    value = vf_if_less(value, least, out, vf_if_less(above, value, value, out));
    value = vf_if_less(greatest, value, out, value);
    vf_store(v + i * LANES, value);
    most = vf_max(value, most);
  }
  return vf_greatest(most);
}

/* Where the value is greatest with its noise; the first of equals. */
static int noisiest(const struct drawn_from* d, const uint32_t key[2]) {
  float best = -INFINITY, bound = d->most + LEAST_NOISE; /* whatever is below it cannot be the greatest */
  int at = 0;
  for (int first = 0; first < d->size; first += MANY) {
    float v[MANY], u[MANY];
    int32_t own[MANY];
    if (values_of(d, first, v) + MOST_NOISE < bound) continue;
    for (int i = 0; i < MANY; i++) own[i] = !d->ids ? first + i : first + i < d->size ? d->ids[first + i] : 0;
    uniform(own, key, u);
    vf hope = vf_set(-INFINITY);
    for (int i = 0; i < MANY; i += LANES) hope = vf_max(vf_add(vf_load(v + i), gumbel_at_most(vf_load(u + i))), hope);
    if (vf_greatest(hope) < bound) continue;
    vf most = vf_set(-INFINITY);
    for (int i = 0; i < MANY; i += LANES) {
      const vf noisy = vf_add(vf_load(v + i), gumbel(vf_load(u + i)));
      vf_store(v + i, noisy), most = vf_max(noisy, most);
    }
    const float its = vf_greatest(most);
    if (!(its > best)) continue;
    best = its, bound = best > bound ? best : bound;
    for (at = first; v[at - first] != best;) at++;
  }
  return at;
}

/* Sum of e^(value - most) over the values above `above`. */
static float mass(const struct drawn_from* all, float above) {
  struct drawn_from d = *all;
  d.least = d.lowest, d.above = above;
  vf sum = vf_set(0);
  for (int first = 0; first < d.size; first += MANY) {
    float v[MANY];
    if (values_of(&d, first, v) == -INFINITY) continue;
    for (int i = 0; i < MANY; i += LANES) sum = vf_add(sum, vf_exp(vf_sub(vf_load(v + i), vf_set(d.most))));
  }
  return vf_sum(sum);
}

/* Of each value how far its surprise lies from what is expected, and what it weighs. Gives the weight of all. */
static float surprises(const struct drawn_from* d, float* distance, float* weight) {
  vf total = vf_set(0), sum = vf_set(0);
  for (int first = 0; first < d->size; first += MANY) {
    values_of(d, first, distance + first);
    for (int i = first; i < first + MANY; i += LANES) {
      const vf gap = vf_sub(vf_set(d->most), vf_load(distance + i)), its = vf_exp(vf_sub(vf_set(0), gap));
      vf_store(distance + i, gap), vf_store(weight + i, its);
      total = vf_add(total, its), sum = vf_add(sum, vf_mul(its, vf_min(gap, vf_set(1e30f))));
    }
  }
  const float all = vf_sum(total);
  const vf expected = vf_set(vf_sum(sum) / all);
  for (int i = 0; i < d->size; i += LANES) vf_store(distance + i, vf_abs(vf_sub(vf_load(distance + i), expected)));
  return all;
}

INLINE float least_of(const float* x) { return -vf_greatest(vf_sub(vf_set(0), vf_load(x))); }

/* The vectors of them in which there is a distance within the limit, in their order: what is left out adds exact zeros. */
static int within(const float* distance, const float* weight, int size, float limit, float* distances, float* weights) {
  int count = 0;
  for (int i = 0; i < size; i += LANES) {
    if (least_of(distance + i) > limit) continue;
    vf_store(distances + count, vf_load(distance + i)), vf_store(weights + count, vf_load(weight + i));
    count += LANES;
  }
  return count;
}

INLINE float float_at(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

enum { LIMITS = 3 }; /* that are tried together */

/* Whose weights sum to `mass` first: the limit, by its place; LIMITS where none of them do. */
INLINE int first_of(const float* distance, const float* weight, int size, const uint32_t* limits, float mass) {
  vf sum[LIMITS];
  for (int k = 0; k < LIMITS; k++) sum[k] = vf_set(0);
  for (int i = 0; i < size; i += LANES) {
    const vf far = vf_load(distance + i), its = vf_load(weight + i);
    for (int k = 0; k < LIMITS; k++) sum[k] = vf_add(sum[k], vf_if_less(vf_set(float_at(limits[k])), far, vf_set(0), its));
  }
  int k = 0;
  while (k < LIMITS && vf_sum(sum[k]) < mass) k++;
  return k;
}

/* The least distance up to which the weights sum to `mass`: floats that are not below 0 are ordered as their bits are, and
 * sums grow with them, so that it is one whatever is tried first. Most ids of most vocabularies lie beyond the first limit
 * that suffices, and are looked at no more. room: for twice the size. */
static float reach_of(const float* distance, const float* weight, int size, float mass, float* room) {
  float* const other = room + (size + LANES - 1) / LANES * LANES;
  uint32_t low = 0, high = 0x42000000, narrowed = high; /* 32: all beyond it weighs less than a float resolves */
  for (uint32_t limits[LIMITS] = {0x3e800000, 0x3f800000, 0x40800000}; low < high;) {
    const int k = first_of(distance, weight, size, limits, mass);
    if (k > 0) low = limits[k - 1] + 1;
    if (k < LIMITS) high = limits[k];
    const uint32_t part = (high - low) / (LIMITS + 1), rest = (high - low) % (LIMITS + 1);
    for (uint32_t i = 0; i < LIMITS; i++) limits[i] = low + (i + 1) * part + (i + 1) * rest / (LIMITS + 1);
    if (high + (1 << 23) > narrowed) continue; /* less than an octave */
    const int near = within(distance, weight, size, float_at(high), room, other);
    narrowed = near > size / 2 ? 0 : high; /* 0: it is not worth while */
    distance = room, weight = other, size = near;
  }
  return float_at(high);
}

/* Values whose surprise is closest to what is expected, up to a mass: all between two of them. No others count then. */
static void keep_typical(struct drawn_from* d, const struct mk_wanted* by) {
  const size_t size = ((size_t)d->size + MANY - 1) / MANY * MANY;
  size_t bytes = 4 * size * sizeof(float);
  float *distance = mk_take(&bytes), *weight = distance + size;
  d->least = -INFINITY;
  const float total = surprises(d, distance, weight);
  const float limit = reach_of(distance, weight, d->size, by->typical * total, weight + size);
  vf least = vf_set(INFINITY), most = vf_set(-INFINITY);
  for (int first = 0; first < d->size; first += MANY) {
    float v[MANY];
    vf near = vf_load(distance + first);
    for (int i = LANES; i < MANY; i += LANES) near = vf_min(vf_load(distance + first + i), near);
    vf_store(v, near);
    if (least_of(v) > limit) continue;
    values_of(d, first, v);
    for (int i = 0; i < MANY; i += LANES) {
      const vf value = vf_load(v + i), far = vf_load(distance + first + i);
      least = vf_min(vf_if_less(vf_set(limit), far, vf_set(INFINITY), value), least);
      most = vf_max(vf_if_less(vf_set(limit), far, vf_set(-INFINITY), value), most);
    }
  }
  mk_give(distance, bytes);
  d->lowest = -vf_greatest(vf_sub(vf_set(0), least)), d->most = vf_greatest(most);
  d->least = d->most + by->min_p > d->lowest ? d->most + by->min_p : d->lowest;
}

/* Values are kept while all that are greater weigh less than the mass. So a draw from all of them stands if its own value
 * is kept; else it and all below are out, and the rest is drawn from. Few draws are needed, and nothing is sorted. */
static int from_all(struct drawn_from* d, float top_p, const uint32_t key[2]) {
  for (float total = -1;;) {
    const int at = noisiest(d, key);
    const float value = d->x[at] / d->temperature;
    if (top_p >= 1 || value >= d->most) return at;
    if (total < 0) total = mass(d, -INFINITY);
    if (mass(d, value) < top_p * total) return at;
    d->above = value;
  }
}

struct candidate {
  float x;
  int id;
};

static int better(struct candidate one, struct candidate other) { return one.x != other.x ? one.x > other.x : one.id < other.id; }

/* Best first. There are few mostly, and no two of them alike: Shell's way, with Ciura's steps. */
static void rank(struct candidate* c, int count) {
  static const int STEPS[] = {701, 301, 132, 57, 23, 10, 4, 1};
  for (size_t s = 0; s < sizeof STEPS / sizeof *STEPS; s++)
    for (int step = STEPS[s], i = step; i < count; i++) {
      const struct candidate one = c[i];
      int at = i;
      for (; at >= step && better(one, c[at - step]); at -= step) c[at] = c[at - step];
      c[at] = one;
    }
}

/* The k-th greatest of some numbers, which are shuffled. */
static float kth(float* x, int count, int k) {
  for (int first = 0, last = count - 1; first < last;) {
    const float pivot = x[first + (last - first) / 2];
    int i = first, j = last;
    while (i <= j) {
      while (x[i] > pivot) i++;
      while (x[j] < pivot) j--;
      if (i > j) break;
      const float aside = x[i];
      x[i++] = x[j], x[j--] = aside;
    }
    if (k - 1 <= j) last = j;
    else if (k - 1 >= i) first = i;
    else break;
  }
  return x[k - 1];
}

enum { CLASSES = 8 }; /* vectors of them: ids that leave the same rest */

/* A number that k of them reach or exceed: each of the best k classes has one. */
static float bound_of(const float* x, int size, int k) {
  if (k > CLASSES * LANES / 2 || size < 2 * CLASSES * LANES) return -INFINITY;
  vf most[CLASSES];
  for (int c = 0; c < CLASSES; c++) most[c] = vf_set(-INFINITY);
  for (int i = 0; i + CLASSES * LANES <= size; i += CLASSES * LANES)
    for (int c = 0; c < CLASSES; c++) most[c] = vf_max(vf_load(x + i + c * LANES), most[c]);
  float all[CLASSES * LANES];
  for (int c = 0; c < CLASSES; c++) vf_store(all + c * LANES, most[c]);
  return kth(all, CLASSES * LANES, k);
}

/* The best k, or as many as there are, best first; of equals those with the least ids. Candidates are gathered until
 * there are twice as many, and then only those count that are better than the k-th. */
static int best_of(const float* x, int size, int k, struct candidate* found) {
  const float bound = bound_of(x, size, k);
  float least = -INFINITY;
  int count = 0;
  for (int first = 0; first < size; first += MANY) {
    const int stop = first + MANY < size ? first + MANY : size;
    if (stop - first == MANY) {
      vf most = vf_set(-INFINITY); /* a lane that began with no number would keep that, whatever comes behind it */
      for (int i = 0; i < MANY; i += LANES) most = vf_max(vf_load(x + first + i), most);
      const float its = vf_greatest(most);
      if (its <= least || its < bound) continue;
    }
    for (int i = first; i < stop; i++)
      if (x[i] > least && x[i] >= bound) found[count++] = (struct candidate){x[i], i};
    if (count < 2 * k) continue;
    rank(found, count);
    count = k, least = found[k - 1].x;
  }
  rank(found, count);
  return count < k ? count : k;
}

/* How many of the values, which fall, are kept: the fewest that weigh `top_p` of all, and the equals of the last. */
static int reach(const float* value, int count, float top_p) {
  float weight[MK_MOST_TOP_K + LANES], total = 0, before = 0;
  const vf most = vf_set(value[0]);
  for (int i = 0; i < count; i += LANES) vf_store(weight + i, vf_exp(vf_sub(vf_load(value + i), most)));
  for (int i = 0; i < count; i++) total += weight[i];
  int last = 0;
  for (int i = 0; i < count && before < top_p * total; i++) last = i, before += weight[i];
  while (last + 1 < count && value[last + 1] == value[last]) last++;
  return last + 1;
}

static int from_best(const float* x, int size, const struct mk_wanted* by, struct drawn_from d, const uint32_t key[2]) {
  struct candidate found[2 * MK_MOST_TOP_K + MANY];
  float best[MK_MOST_TOP_K + LANES], value[MK_MOST_TOP_K + LANES];
  int32_t ids[MK_MOST_TOP_K];
  int first = 0, stop = best_of(x, size, by->top_k, found);
  for (int i = 0; i < stop; i++) best[i] = found[i].x, ids[i] = found[i].id, value[i] = best[i] / by->temperature;
  for (int i = stop; i < stop + LANES; i++) best[i] = value[i] = -INFINITY;
  d.x = best, d.size = stop;
  if (by->typical < 1) {
    keep_typical(&d, by);
    while (value[first] > d.most) first++;
    while (value[stop - 1] < d.lowest) stop--;
  }
  if (by->top_p < 1) stop = first + reach(value + first, stop - first, by->top_p);
  d.x = best + first, d.ids = ids + first, d.size = stop - first;
  return ids[first + noisiest(&d, key)];
}

static int token(const float* x, int size, const struct mk_wanted* by, const uint32_t key[2]) {
  vf greatest = vf_set(-INFINITY);
  float most = -INFINITY;
  int i = 0;
  for (; i + LANES <= size; i += LANES) greatest = vf_max(vf_load(x + i), greatest);
  most = vf_greatest(greatest);
  for (; i < size; i++) most = x[i] > most ? x[i] : most;
  most /= by->temperature;
  if (!(__builtin_fabsf(most) < INFINITY)) return -1;
  struct drawn_from d = {x, NULL, size, by->temperature, -INFINITY, most, most + by->min_p, -INFINITY};
  if (by->top_k && by->top_k < size) return from_best(x, size, by, d, key);
  if (by->typical < 1) keep_typical(&d, by);
  return from_all(&d, by->top_p, key);
}

const struct draw COLUMN(draw) = {token};
