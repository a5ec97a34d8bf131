#include "rows/softmax.h"
#include "simd/registers.h"

static float greatest(const float* x, int width) {
  const int whole = width / LANES * LANES;
  vf most = vf_set(-INFINITY);
  for (int i = 0; i < whole; i += LANES) most = vf_max(vf_load(x + i), most);
  float best = vf_greatest(most);
  for (int i = whole; i < width; i++) best = x[i] > best ? x[i] : best;
  return best;
}

/* Writes e^(x - max x) where y is given, and returns their sum. */
INLINE float powers(const float* x, float most, float* y, int width) {
  const int whole = width / LANES * LANES, rest = width - whole;
  const vf shift = vf_set(most);
  vf sum = vf_set(0);
  for (int i = 0; i < whole; i += LANES) {
    const vf e = vf_exp(vf_sub(vf_load(x + i), shift));
    if (y) vf_store(y + i, e);
    sum = vf_add(sum, e);
  }
  if (rest) { /* where there is nothing, e^-inf is added */
    float t[LANES];
    for (int i = 0; i < LANES; i++) t[i] = i < rest ? x[whole + i] : -INFINITY;
    const vf e = vf_exp(vf_sub(vf_load(t), shift));
    if (y) vf_store_some(y + whole, e, rest);
    sum = vf_add(sum, e);
  }
  return vf_sum(sum);
}

static void row(const float* x, float* y, int width) {
  const vf sum = vf_set(powers(x, greatest(x, width), y, width));
  const int whole = width / LANES * LANES, rest = width - whole;
  for (int i = 0; i < whole; i += LANES) vf_store(y + i, vf_div(vf_load(y + i), sum));
  if (rest) vf_store_some(y + whole, vf_div(vf_load_some(y + whole, rest), sum), rest);
}

/* log of a float from 1 to 2^31, in double: its exponent, and twice atanh's series of (m - 1) / (m + 1). */
static double log_of(double a) {
  uint64_t bits;
  memcpy(&bits, &a, 8);
  const int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
  bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  double m;
  memcpy(&m, &bits, 8);
  const double s = (m - 1) / (m + 1), z = s * s; /* s up to 1/3 */
  double p = 0;
  for (int k = 25; k > 0; k -= 2) p = p * z + 2.0 / k;
  return (double)exponent * 0.69314718055994530942 + s * p;
}

static float log_sum(const float* x, int width) {
  const float most = greatest(x, width);
  if (!(__builtin_fabsf(most) < INFINITY)) return most; /* all are -inf, or one is +inf */
  const float sum = powers(x, most, NULL, width);
  return sum >= 1 ? (float)((double)most + log_of(sum)) : sum; /* not: NaN */
}

enum { BLOCK = 1024 }; /* numbers that are looked through one by one where the greatest is among them */

static int likeliest(const float* x, int width) {
  float best = -INFINITY;
  int first = 0;
  for (int i = 0; i < width; i += BLOCK) {
    const float most = greatest(x + i, width - i < BLOCK ? width - i : BLOCK);
    if (most > best) best = most, first = i;
  }
  if (x[0] != x[0] || best == -INFINITY) return 0;
  while (x[first] != best) first++;
  return first;
}

const struct softmax COLUMN(softmax) = {row, log_sum, likeliest};
