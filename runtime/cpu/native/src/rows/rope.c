#include "rows/rope.h"
#include "simd/registers.h"

/* sin and cos of a double of any size up to 1e9, to 1e-15: what is left of x after whole quarters of a turn, and
 * fdlibm's polynomials within half a quarter. */
static void sin_cos(double x, double* sin, double* cos) {
  const double quarters = __builtin_rint(x * 0.63661977236758134308);
  double r = __builtin_fma(-quarters, 1.57079632679489655800, x);
  r = __builtin_fma(-quarters, 6.12323399573676603587e-17, r);
  const double z = r * r;
  double p = 1.58969099521155010221e-10;
  p = __builtin_fma(p, z, -2.50507602534068634195e-08);
  p = __builtin_fma(p, z, 2.75573137070700676789e-06);
  p = __builtin_fma(p, z, -1.98412698298579493134e-04);
  p = __builtin_fma(p, z, 8.33333333332248946124e-03);
  p = __builtin_fma(p, z, -1.66666666666666324348e-01);
  const double s = __builtin_fma(p * z, r, r);
  double q = -1.13596475577881948265e-11;
  q = __builtin_fma(q, z, 2.08757232129817482790e-09);
  q = __builtin_fma(q, z, -2.75573143513906633035e-07);
  q = __builtin_fma(q, z, 2.48015872894767294178e-05);
  q = __builtin_fma(q, z, -1.38888888888741095749e-03);
  q = __builtin_fma(q, z, 4.16666666666666019037e-02);
  const double c = __builtin_fma(z * z, q, __builtin_fma(z, -0.5, 1.0));
  const int64_t turn = (int64_t)quarters & 3;
  const double a = turn & 1 ? c : s, b = turn & 1 ? s : c;
  *sin = turn & 2 ? -a : a;
  *cos = turn == 1 || turn == 2 ? -b : b;
}

static void table(const float* frequencies, int pairs, int64_t position, float factor, float* row) {
  for (int i = 0; i < pairs; i++) {
    double sin, cos;
    sin_cos(((double)frequencies[i] + (double)frequencies[pairs + i]) * (double)position, &sin, &cos);
    row[i] = (float)(cos * (double)factor);
    row[pairs + i] = (float)(sin * (double)factor);
  }
}

/* (a, b) -> (a cos - b sin, b cos + a sin), every product rounded: as lanes or alone, the same bits. */
static void turn(const float* x, const float* row, float* y, int pairs, int size, int traditional) {
  const float *cos = row, *sin = row + pairs;
  if (traditional) {
    for (int i = 0; i < pairs; i++) {
      const float a = x[2 * i], b = x[2 * i + 1], left = a * cos[i] - b * sin[i], right = b * cos[i] + a * sin[i];
      y[2 * i] = left;
      y[2 * i + 1] = right;
    }
  } else {
    int i = 0;
    for (; i + LANES <= pairs; i += LANES) {
      const vf a = vf_load(x + i), b = vf_load(x + pairs + i), c = vf_load(cos + i), s = vf_load(sin + i);
      vf_store(y + i, vf_sub(vf_mul(a, c), vf_mul(b, s)));
      vf_store(y + pairs + i, vf_add(vf_mul(b, c), vf_mul(a, s)));
    }
    for (; i < pairs; i++) {
      const float a = x[i], b = x[pairs + i];
      y[i] = a * cos[i] - b * sin[i];
      y[pairs + i] = b * cos[i] + a * sin[i];
    }
  }
  if (y != x && size > 2 * pairs) memcpy(y + 2 * pairs, x + 2 * pairs, (size_t)(size - 2 * pairs) * 4);
}

const struct rope COLUMN(rope) = {table, turn};
