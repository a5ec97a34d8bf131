/* The two products of attention on one block of keys, with the order of sums that attend.h states.
 *
 * `low` and `high` are the block's places that hold keys; k and v begin with the vector at place `low`. Scores and
 * weights are [queries][MK_BLOCK].
 */
#pragma once
#include "attention/attend.h"
#include "attention/kept_read.h"
#include "simd/transpose.h"

/* Queries that share what is read of a block. Without vector registers there is nothing to share, and code in one piece
 * for four of them is large. */
#if defined(MK_NO_SIMD)
enum { TOGETHER = 1 };
#define NESTED static
#else
enum { TOGETHER = 4 };
#define NESTED INLINE
#endif

/* A key or value is asked for half a block before it is needed, while as much is computed as memory takes for it, and numbers are
 * made of halves and codes as they are read, not before. One thread, GB/s of keys and values that come from memory, before ->
 * since, on a Zen 5: four queries to a key of 128 float32 18 -> 29, three to one of 64 27 -> 31, in f16 8.5 -> 24, in q8 9 -> 14;
 * on a Zen 4, asking alone: four of 128 10 -> 17, 256 numbers 10 -> 18, seven queries 9 -> 12. */
enum { SOON = MK_BLOCK / 2 };

/* Calls `call` with the form as a constant. */
#define BY_FORM(form, call)                    \
  switch (form) {                              \
    case MK_KEPT_F32: call(MK_KEPT_F32); break;   \
    case MK_KEPT_BF16: call(MK_KEPT_BF16); break; \
    case MK_KEPT_F16: call(MK_KEPT_F16); break;   \
    case MK_KEPT_Q8: call(MK_KEPT_Q8); break;     \
    default: call(MK_KEPT_Q4);                    \
  }

/* vf_sum of sixteen vectors at once: lane j of the answer is that of t[j]. */
#if defined(__AVX512F__)
INLINE vf sums16(const vf* t) {
  vf pairs[8], fours[4], twos[2];
#define PD(op, x, y) _mm512_castpd_ps(op(_mm512_castps_pd(x), _mm512_castps_pd(y)))
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) { /* lane j + 8 to lane j; two vectors in one */
    const vf x = t[i / 2 + i % 2 * 8], y = t[i / 2 + i % 2 * 8 + 4];
    pairs[i] = vf_add(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    fours[i] = vf_add(_mm512_shuffle_f32x4(pairs[2 * i], pairs[2 * i + 1], 0x88), _mm512_shuffle_f32x4(pairs[2 * i], pairs[2 * i + 1], 0xdd));
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++)
    twos[i] = vf_add(PD(_mm512_unpacklo_pd, fours[2 * i], fours[2 * i + 1]), PD(_mm512_unpackhi_pd, fours[2 * i], fours[2 * i + 1]));
#undef PD
  return vf_add(_mm512_shuffle_ps(twos[0], twos[1], 0x88), _mm512_shuffle_ps(twos[0], twos[1], 0xdd));
}
#elif defined(__AVX2__)
INLINE __m256 sums8(const vf* t) {
  __m256 fours[4], twos[2];
#define PD(op, x, y) _mm256_castpd_ps(op(_mm256_castps_pd(x), _mm256_castps_pd(y)))
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const __m256 x = _mm256_add_ps(t[i].a, t[i].b), y = _mm256_add_ps(t[i + 4].a, t[i + 4].b);
    fours[i] = _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++)
    twos[i] = _mm256_add_ps(PD(_mm256_unpacklo_pd, fours[2 * i], fours[2 * i + 1]), PD(_mm256_unpackhi_pd, fours[2 * i], fours[2 * i + 1]));
#undef PD
  return _mm256_add_ps(_mm256_shuffle_ps(twos[0], twos[1], 0x88), _mm256_shuffle_ps(twos[0], twos[1], 0xdd));
}
INLINE vf sums16(const vf* t) { return TWO(sums8(t), sums8(t + 8)); }
#else
INLINE vf sums16(const vf* t) {
  float sums[LANES];
  for (int i = 0; i < LANES; i++) sums[i] = vf_sum(t[i]);
  return vf_load(sums);
}
#endif

/* ---- scores, keys as they lie: for few queries ---- */

NESTED void lanes_tile(const int form, const int rows, const float* q, const struct mk_span* k, int low, int high, int size, float* scores) {
  for (int v = low - low % LANES; v < high; v += LANES) {
    vf t[TOGETHER][LANES];
    for (int j = 0; j < LANES; j++) {
      vf sum[TOGETHER];
      if (v + j < low || v + j >= high) {
        for (int r = 0; r < rows; r++) t[r][j] = vf_set(0);
        continue;
      }
      for (int r = 0; r < rows; r++) sum[r] = vf_set(-0.f); /* x + -0 is x, whatever its sign */
      const struct vector key = vector_at(form, k, v + j - low);
      for (int g = 0, i = 0; i < size; g++)
        for (const int end = i + k->group; i < end; i += LANES) {
          ask(form, k, &key, i, SOON);
          const vf kv = numbers_at(form, &key, i, g);
          for (int r = 0; r < rows; r++) sum[r] = vf_fma(kv, vf_load(q + r * size + i), sum[r]);
        }
      for (int r = 0; r < rows; r++) t[r][j] = sum[r];
    }
    for (int r = 0; r < rows; r++) vf_store(scores + r * MK_BLOCK + v, sums16(t[r]));
  }
}

NESTED void lanes_rows(const int rows, const float* q, const struct mk_span* k, int low, int high, int size, float* scores) {
#define TILE_OF(form) lanes_tile(form, rows, q, k, low, high, size, scores)
  BY_FORM(k->form, TILE_OF)
#undef TILE_OF
}

static void scores_by_lanes(const float* q, int count, const struct mk_span* k, int low, int high, int size, float* scores) {
  for (; count > 0; count -= TOGETHER, q += TOGETHER * size, scores += TOGETHER * MK_BLOCK) {
    if (TOGETHER == 1 || count == 1) lanes_rows(1, q, k, low, high, size, scores);
    else if (count == 2) lanes_rows(2, q, k, low, high, size, scores);
    else if (count == 3) lanes_rows(3, q, k, low, high, size, scores);
    else lanes_rows(4, q, k, low, high, size, scores);
  }
}

/* ---- scores, keys turned over: for many queries ---- */

/* to[number][place]: the numbers of the keys at all places of the block, zeros where there is none. */
NESTED void turn_form(const int form, const struct mk_span* k, int low, int high, int size, float* to) {
  for (int v = low - low % LANES; v < high; v += LANES)
    for (int i = 0; i < size; i += LANES) {
      const int group = packed(form) ? i / k->group : 0;
      vf t[LANES];
      for (int j = 0; j < LANES; j++) {
        const struct vector key = vector_at(form, k, v + j - low);
        ask(form, k, &key, i, SOON);
        t[j] = v + j < low || v + j >= high ? vf_set(0) : numbers_at(form, &key, i, group);
      }
      transpose16(t);
      for (int j = 0; j < LANES; j++) vf_store(to + (i + j) * MK_BLOCK + v, t[j]);
    }
}

static void turn_over(const struct mk_span* k, int low, int high, int size, float* to) {
#define TURN_OF(form) turn_form(form, k, low, high, size, to)
  BY_FORM(k->form, TURN_OF)
#undef TURN_OF
}

/* One of the sixteen lanes that a score is the sum of, for sixteen keys. */
NESTED void one_lane(const int rows, vf* sum, const float* q, const float* k, const int size, int lane) {
  const vf first = vf_load(k + lane * MK_BLOCK);
  for (int r = 0; r < rows; r++) sum[r] = vf_mul(first, vf_set(q[r * size + lane]));
#pragma GCC unroll 8
  for (int i = lane + LANES; i < size; i += LANES) {
    const vf kv = vf_load(k + i * MK_BLOCK);
    for (int r = 0; r < rows; r++) sum[r] = vf_fma(kv, vf_set(q[r * size + i]), sum[r]);
  }
}

/* vf_sum's tree from its leaves up: lane + 8, then + 4, + 2, + 1. */
#define HALF(name, below, distance)                                                                             \
  NESTED void name(const int rows, vf* sum, const float* q, const float* k, const int size, int lane) {         \
    vf other[TOGETHER];                                                                                                \
    below(rows, sum, q, k, size, lane);                                                                         \
    below(rows, other, q, k, size, lane + distance);                                                            \
    for (int r = 0; r < rows; r++) sum[r] = vf_add(sum[r], other[r]);                                           \
  }
HALF(two_lanes, one_lane, 8)
HALF(four_lanes, two_lanes, 4)
HALF(eight_lanes, four_lanes, 2)
HALF(all_lanes, eight_lanes, 1)
#undef HALF

NESTED void keys_tile(const int rows, const float* q, const float* k, int low, int high, const int size, float* scores) {
  for (int v = low - low % LANES; v < high; v += LANES) {
    vf sum[TOGETHER];
    all_lanes(rows, sum, q, k + v, size, 0);
    for (int r = 0; r < rows; r++) vf_store(scores + r * MK_BLOCK + v, sum[r]);
  }
}

NESTED void keys_tiles(const float* q, int count, const float* k, int low, int high, const int size, float* scores) {
  int r = 0;
  for (; r + TOGETHER <= count; r += TOGETHER) keys_tile(TOGETHER, q + r * size, k, low, high, size, scores + r * MK_BLOCK);
  for (; r < count; r++) keys_tile(1, q + r * size, k, low, high, size, scores + r * MK_BLOCK);
}

static void scores_by_keys(const float* q, int count, const float* k, int low, int high, int size, float* scores) {
  /* the usual sizes are known to the compiler */
  if (TOGETHER > 1 && size == 64) keys_tiles(q, count, k, low, high, 64, scores);
  else if (TOGETHER > 1 && size == 128) keys_tiles(q, count, k, low, high, 128, scores);
  else keys_tiles(q, count, k, low, high, size, scores);
}

/* ---- weighted values ---- */

#if defined(__AVX512F__) || defined(__aarch64__)
enum { WIDE = 4 }; /* vectors of values in registers beside those of four queries */
#else
enum { WIDE = 1 };
#endif

/* Adds the values at places [from, to), times one query's weights. `low` is the place that v begins with. */
NESTED void mix_some(const int form, const int wide, const float* weights, const struct mk_span* v, const int* group, int first, int low,
                     int from, int to, vf* sum) {
  for (int j = from; j < to; j++) {
    const struct vector value = vector_at(form, v, j - low);
    const vf w = vf_set(weights[j]);
    for (int c = 0; c < wide; c++) {
      ask(form, v, &value, first + c * LANES, SOON);
      sum[c] = vf_fma(w, numbers_at(form, &value, first + c * LANES, group[c]), sum[c]);
    }
  }
}

/* What all of them see is read once; what lies before and behind that, by each that sees it. */
NESTED void mix_tile(const int form, const int rows, const int wide, const float* weights, const float* factors, const struct mk_sight* sights,
                     const struct mk_span* v, int first, int low, float* out, ptrdiff_t out_stride) {
  vf sum[TOGETHER][WIDE];
  int group[WIDE];
  const int from = sights[rows - 1].from, to = sights[0].to > from ? sights[0].to : from;
  for (int c = 0; c < wide; c++) group[c] = packed(form) ? (first + c * LANES) / v->group : 0;
  for (int r = 0; r < rows; r++) {
    for (int c = 0; c < wide; c++) sum[r][c] = vf_mul(vf_load(out + r * out_stride + c * LANES), vf_set(factors[r]));
    const int end = sights[r].to < from ? sights[r].to : from;
    mix_some(form, wide, weights + r * MK_BLOCK, v, group, first, low, sights[r].from, end, sum[r]);
  }
  for (int j = from; j < to; j++) {
    const struct vector value = vector_at(form, v, j - low);
    vf numbers[WIDE];
    for (int c = 0; c < wide; c++) {
      ask(form, v, &value, first + c * LANES, SOON);
      numbers[c] = numbers_at(form, &value, first + c * LANES, group[c]);
    }
    for (int r = 0; r < rows; r++) {
      const vf w = vf_set(weights[r * MK_BLOCK + j]);
      for (int c = 0; c < wide; c++) sum[r][c] = vf_fma(w, numbers[c], sum[r][c]);
    }
  }
  for (int r = 0; r < rows; r++) {
    mix_some(form, wide, weights + r * MK_BLOCK, v, group, first, low, to, sights[r].to, sum[r]);
    for (int c = 0; c < wide; c++) vf_store(out + r * out_stride + c * LANES, sum[r][c]);
  }
}

NESTED void mix_form(const int form, const int rows, const float* weights, const float* factors, const struct mk_sight* sights,
                     const struct mk_span* v, int low, int size, float* out, ptrdiff_t out_stride) {
  int c = 0;
  for (; c + WIDE * LANES <= size; c += WIDE * LANES)
    mix_tile(form, rows, WIDE, weights, factors, sights, v, c, low, out + c, out_stride);
  for (; c < size; c += LANES) mix_tile(form, rows, 1, weights, factors, sights, v, c, low, out + c, out_stride);
}

NESTED void mix_rows(const int rows, const float* weights, const float* factors, const struct mk_sight* sights, const struct mk_span* v, int low,
                     int size, float* out, ptrdiff_t out_stride) {
#define MIX_OF(form) mix_form(form, rows, weights, factors, sights, v, low, size, out, out_stride)
  BY_FORM(v->form, MIX_OF)
#undef MIX_OF
}

/* out[query] = out[query] * factor + what it sees of the block's values, times their weights, in order of place. */
static void mix(const float* weights, const float* factors, const struct mk_sight* sights, int count, const struct mk_span* v, int low, int size,
                float* out, ptrdiff_t out_stride) {
  for (; count > 0; count -= TOGETHER, weights += TOGETHER * MK_BLOCK, factors += TOGETHER, sights += TOGETHER, out += TOGETHER * out_stride) {
    if (TOGETHER == 1 || count == 1) mix_rows(1, weights, factors, sights, v, low, size, out, out_stride);
    else if (count == 2) mix_rows(2, weights, factors, sights, v, low, size, out, out_stride);
    else if (count == 3) mix_rows(3, weights, factors, sights, v, low, size, out, out_stride);
    else mix_rows(4, weights, factors, sights, v, low, size, out, out_stride);
  }
}
