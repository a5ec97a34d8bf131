#include "digests.h"
#include "sampling/draw.h"
#include <math.h>

static void digest_wanted(int size, struct mk_wanted wanted, const char* name) {
  enum { ROWS = 4, COLUMNS = 3 };
  const struct mk_wanted rows[ROWS] = {wanted, wanted, wanted, wanted};
  float* x = floats((size_t)ROWS * COLUMNS * size, -9, 9);
  for (int i = 0; i < ROWS * COLUMNS * size; i += 5) x[i] = i % 3 ? -INFINITY : NAN;
  uint32_t keys[ROWS * COLUMNS][2];
  int32_t y[ROWS * COLUMNS] = {0};
  for (int i = 0; i < ROWS * COLUMNS; i++) keys[i][0] = any_bits(), keys[i][1] = any_bits() | 1;
  mk_draw(x, size, rows, (const uint32_t(*)[2])keys, y, ROWS, COLUMNS, size);
  say_bytes(y, sizeof y, "draw size=%d %s", size, name);
}

void digest_draws(void) {
  static const int sizes[] = {2, 16, 64, 100, 1027, 5000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    digest_wanted(sizes[i], (struct mk_wanted){0.8f, 0, 1, -INFINITY, 1}, "all");
    digest_wanted(sizes[i], (struct mk_wanted){30, 0, 0.9f, -INFINITY, 1}, "mass, hot");
    digest_wanted(sizes[i], (struct mk_wanted){1, 0, 0.3f, -3, 1}, "mass and share");
    digest_wanted(sizes[i], (struct mk_wanted){2, 12, 0.8f, -4, 1}, "best few");
    digest_wanted(sizes[i], (struct mk_wanted){9, MK_MOST_TOP_K, 0.99f, -INFINITY, 1}, "best many");
    digest_wanted(sizes[i], (struct mk_wanted){3, 0, 1, -INFINITY, 0.4f}, "typical");
    digest_wanted(sizes[i], (struct mk_wanted){3, 40, 0.8f, -2, 0.7f}, "every filter");
  }
}
