/* The two products of attention on one block of keys, with the order of sums that attend.h states.
 *
 * `low` and `high` are the block's places that hold keys; k and v point to the vector at place `low`. Scores and
 * weights are [queries][MK_BLOCK].
 */
#pragma once
#include "attend.h"
#include "lines.h"
#include "simd.h"
#include "transpose.h"

/* Queries that share what is read of a block. Without vector registers there is nothing to share, and code in one piece
 * for four of them is large. */
#if defined(MK_NO_SIMD)
enum { TOGETHER = 1 };
#define NESTED static
#else
enum { TOGETHER = 4 };
#define NESTED INLINE
#endif

/* A key or value is asked for half a block before it is needed, while as much is computed as memory takes for it. On a Zen 4,
 * one thread, GB/s of keys and values that come from memory: 10 -> 17 with four queries to a key of 128 numbers, 10 -> 18
 * with 256, 9 -> 12 with seven. One or two queries of 64 numbers read as fast as the processor brings lines by itself, and
 * where lines come to the first cache nobody has measured. */
enum { SOON = MK_BLOCK / 2 };

INLINE int asks(int queries, int size) { return mk_to_second_cache && (size > 64 || queries > 2); }

INLINE void ask(const float* x) { __builtin_prefetch(x, 0, 2); }

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

NESTED void lanes_tile(const int rows, const int asking, const float* q, const float* k, ptrdiff_t stride, int low, int high, int size,
                       float* scores) {
  for (int v = low - low % LANES; v < high; v += LANES) {
    vf t[TOGETHER][LANES];
    for (int j = 0; j < LANES; j++) {
      vf sum[TOGETHER];
      if (v + j < low || v + j >= high) {
        for (int r = 0; r < rows; r++) t[r][j] = vf_set(0);
        continue;
      }
      const float* key = k + (v + j - low) * stride;
      if (asking) ask(key + SOON * stride);
      for (int r = 0; r < rows; r++) sum[r] = vf_mul(vf_load(key), vf_load(q + r * size));
      for (int i = LANES; i < size; i += LANES) {
        const vf kv = vf_load(key + i);
        if (asking) ask(key + SOON * stride + i);
        for (int r = 0; r < rows; r++) sum[r] = vf_fma(kv, vf_load(q + r * size + i), sum[r]);
      }
      for (int r = 0; r < rows; r++) t[r][j] = sum[r];
    }
    for (int r = 0; r < rows; r++) vf_store(scores + r * MK_BLOCK + v, sums16(t[r]));
  }
}

NESTED void lanes_rows(const int rows, int asking, const float* q, const float* k, ptrdiff_t stride, int low, int high, int size,
                       float* scores) {
  if (asking) lanes_tile(rows, 1, q, k, stride, low, high, size, scores);
  else lanes_tile(rows, 0, q, k, stride, low, high, size, scores);
}

static void scores_by_lanes(const float* q, int count, const float* k, ptrdiff_t stride, int low, int high, int size, float* scores) {
  for (int r = 0; r < count; r += TOGETHER, q += TOGETHER * size, scores += TOGETHER * MK_BLOCK) {
    const int some = count - r, asking = !r && asks(count, size);
    if (TOGETHER == 1 || some == 1) lanes_rows(1, asking, q, k, stride, low, high, size, scores);
    else if (some == 2) lanes_rows(2, asking, q, k, stride, low, high, size, scores);
    else if (some == 3) lanes_rows(3, asking, q, k, stride, low, high, size, scores);
    else lanes_rows(4, asking, q, k, stride, low, high, size, scores);
  }
}

/* ---- scores, keys turned over: for many queries ---- */

/* to[number][place]: the numbers of the keys at all places of the block, zeros where there is none. */
static void turn_over(const float* k, ptrdiff_t stride, int low, int high, int size, float* to) {
  const int asking = mk_to_second_cache; /* of many queries, whatever their size */
  for (int v = low - low % LANES; v < high; v += LANES)
    for (int i = 0; i < size; i += LANES) {
      vf t[LANES];
      if (asking)
        for (int j = 0; j < LANES; j++) ask(k + (v + j - low + SOON) * stride + i);
      for (int j = 0; j < LANES; j++) t[j] = v + j < low || v + j >= high ? vf_set(0) : vf_load(k + (v + j - low) * stride + i);
      transpose16(t);
      for (int j = 0; j < LANES; j++) vf_store(to + (i + j) * MK_BLOCK + v, t[j]);
    }
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

NESTED void mix_tile(const int rows, const int wide, const int asking, const float* weights, const float* factors, const float* v,
                     ptrdiff_t stride, int low, int high, float* out, ptrdiff_t out_stride) {
  vf sum[TOGETHER][WIDE];
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < wide; c++) sum[r][c] = vf_mul(vf_load(out + r * out_stride + c * LANES), vf_set(factors[r]));
  for (int j = low; j < high; j++, v += stride) {
    for (int c = 0; asking && c < wide; c++) ask(v + SOON * stride + c * LANES);
    for (int r = 0; r < rows; r++) {
      const vf w = vf_set(weights[r * MK_BLOCK + j]);
      for (int c = 0; c < wide; c++) sum[r][c] = vf_fma(w, vf_load(v + c * LANES), sum[r][c]);
    }
  }
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < wide; c++) vf_store(out + r * out_stride + c * LANES, sum[r][c]);
}

NESTED void mix_rows(const int rows, const int asking, const float* weights, const float* factors, const float* v, ptrdiff_t stride, int low,
                     int high, int size, float* out, ptrdiff_t out_stride) {
  int c = 0;
  for (; c + WIDE * LANES <= size; c += WIDE * LANES)
    mix_tile(rows, WIDE, asking, weights, factors, v + c, stride, low, high, out + c, out_stride);
  for (; c < size; c += LANES) mix_tile(rows, 1, asking, weights, factors, v + c, stride, low, high, out + c, out_stride);
}

NESTED void mix_some(const int rows, int asking, const float* weights, const float* factors, const float* v, ptrdiff_t stride, int low,
                     int high, int size, float* out, ptrdiff_t out_stride) {
  if (asking) mix_rows(rows, 1, weights, factors, v, stride, low, high, size, out, out_stride);
  else mix_rows(rows, 0, weights, factors, v, stride, low, high, size, out, out_stride);
}

/* out[query] = out[query] * factor + the block's values times their weights, in order of place. */
static void mix(const float* weights, const float* factors, int count, const float* v, ptrdiff_t stride, int low, int high, int size,
                float* out, ptrdiff_t out_stride) {
  for (int r = 0; r < count; r += TOGETHER) {
    const int some = count - r, asking = !r && asks(count, size);
    if (TOGETHER == 1 || some == 1) mix_some(1, asking, weights, factors, v, stride, low, high, size, out, out_stride);
    else if (some == 2) mix_some(2, asking, weights, factors, v, stride, low, high, size, out, out_stride);
    else if (some == 3) mix_some(3, asking, weights, factors, v, stride, low, high, size, out, out_stride);
    else mix_some(4, asking, weights, factors, v, stride, low, high, size, out, out_stride);
    weights += TOGETHER * MK_BLOCK, factors += TOGETHER, out += TOGETHER * out_stride;
  }
}
