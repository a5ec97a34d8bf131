#include "rows/streams.h"
#include "simd/rest.h"

static void mix(const float* x, const float* by, float* y, int count, int width) {
  FOR_LANES(i, n, width) {
    vf old[MK_MOST_STREAMS];
    for (int t = 0; t < count; t++) old[t] = load(x + (ptrdiff_t)t * width + i, n);
    for (int s = 0; s < count; s++) {
      vf sum = vf_set(0);
      for (int t = 0; t < count; t++) sum = vf_fma(vf_set(by[s * count + t]), old[t], sum);
      store(y + (ptrdiff_t)s * width + i, vf_add(sum, old[s]), n);
    }
  }
}

static void correct(const float* x, const float* answer, const float* by, float* y, int count, int width, int place) {
  FOR_LANES(i, n, width) {
    const vf surprise = vf_sub(load(answer + i, n), load(x + (ptrdiff_t)place * width + i, n));
    for (int s = 0; s < count; s++) {
      const ptrdiff_t at = (ptrdiff_t)s * width + i;
      store(y + at, vf_fma(vf_set(by[s] + 1), surprise, load(x + at, n)), n);
    }
  }
}

static void join(const float* x, const float* answer, float* y, int count, int width) {
  FOR_LANES(i, n, width) {
    const vf more = load(answer + i, n);
    store(y + i, load(x + i, n), n);
    for (int s = 1; s < count; s++) {
      const ptrdiff_t at = (ptrdiff_t)s * width + i;
      store(y + at, vf_add(load(x + at, n), more), n);
    }
  }
}

const struct streams COLUMN(streams) = {mix, correct, join};
