#include "products/few_blocks.h"
#if defined(__AVX512VNNI__)
#include "products/few_blocks_vnni.h"
#else
#include "products/few_blocks_any.h"
#endif

typedef void pass_of(const struct panel* p, const char* x, size_t ldx, int k, float* sums);

/* Functions of their own: of all in one GCC makes worse code. */
#define PASS_OF(kind, R)                                                                                                          \
  static __attribute__((noinline)) void pass_##kind##_##R(const struct panel* p, const char* x, size_t ldx, int k, float* sums) { \
    few_blocks(p, x, ldx, k, sums, MK_##kind, R);                                                                                 \
  }
#define PASSES(kind) FOR_ROWS(PASS_OF, kind)
PASSES(Q2_K) PASSES(Q3_K) PASSES(Q4_K) PASSES(Q5_K) PASSES(Q6_K) PASSES(IQ4_XS)

#define NAME_OF(kind, R) pass_##kind##_##R,
#define NAMES(kind) {FOR_ROWS(NAME_OF, kind)}
static pass_of* const PASS_FOR[][FEW_WITH_BLOCKS] = {NAMES(Q2_K), NAMES(Q3_K), NAMES(Q4_K), NAMES(Q5_K), NAMES(Q6_K), NAMES(IQ4_XS)};

static void strip(const struct mk_matrix* w, int n0, const char* x, size_t ldx, int rows, float* sums) {
  for (int p0 = 0; p0 < MK_STRIP; p0 += LANES) {
    const struct panel p = panel_of(w->codes, (size_t)w->stride, n0 + p0, w->n);
    PASS_FOR[w->kind - MK_Q2_K][rows - 1](&p, x, ldx, w->k, sums + p0);
  }
}

const struct few_blocks INTEGER_COLUMN(few_blocks) = {strip};
