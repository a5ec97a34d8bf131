#include "products/products.h"
#include "products/few.h"
#include "products/few_blocks.h"
#include "products/quantized_rows.h"
#include "products/tile.h"
#include "products/unpack_blocks.h"

static void unpack_codes(const struct mk_matrix* w, const struct panel* p, size_t at, int bytes, int ahead, int32_t (*out)[LANES]) {
  switch (w->bits) {
    case 1: unpack(p, at, bytes, ahead, 1, 0, out); break;
    case 2: unpack(p, at, bytes, ahead, 2, 0, out); break;
    case 3: unpack(p, at, bytes, ahead, 3, 0, out); break;
    case 5: unpack(p, at, bytes, ahead, 5, 0, out); break;
    case 6: unpack(p, at, bytes, ahead, 6, 0, out); break;
    case 8: unpack(p, at, bytes, ahead, 8, 0, out); break;
    default:
      if (w->kind == MK_AFFINE) unpack(p, at, bytes, ahead, 4, 0, out);
      else unpack(p, at, bytes, ahead, 4, 1, out);
  }
}

static int scale_bytes(const struct mk_matrix* w) { return w->type == MK_U8 ? 1 : w->type == MK_F32 ? 4 : 2; }

/* The scales and biases of some panels come into the cache: few lines, far from the codes, and waiting for them took a
 * third of a product with one row. */
static void fetch_groups(const struct mk_matrix* w, int n0, int panels) {
  const size_t row = (size_t)(w->k / w->group) * scale_bytes(w), from = row * (size_t)n0;
  for (size_t i = 0; i < row * LANES * (size_t)panels; i += 64) {
    bring_lines((const char*)w->scales + from + i, 1);
    if (w->biases) bring_lines((const char*)w->biases + from + i, 1);
  }
}

/* Scales or biases of a panel: `bytes` <= 64 from `at` on of each row. */
struct groups {
  const char* base;
  size_t row, at; /* row: bytes of one */
  int bytes, n0, n;
};

#if defined(__AVX512VNNI__)
/* May 32 bytes be read wherever a row's `bytes` have not all been? */
static int turnable(const struct groups* g) {
  const size_t pieces = (size_t)(g->bytes + 31) / 32 * 32;
  return g->n0 + LANES <= g->n && g->row * (size_t)(g->n0 + LANES - 1) + g->at + pieces <= g->row * (size_t)g->n;
}

/* -> floats in registers: from words in memory it took twice as long, and that a seventh of a product with one row. */
INLINE void turn_halves(const struct groups* g, float (*out)[LANES], const int type) {
  const char* first = g->base + g->row * (size_t)g->n0 + g->at;
  for (int left = g->bytes; left > 0; left -= 32, first += 32, out += 16) {
    vi words[8];
    vi_turn(first, g->row, words);
    UNROLL for (int i = 0; i < 8; i++) {
      if (4 * i >= left) break;
      vf_store(out[2 * i], type == MK_BF16 ? vi_as_float(vi_left(words[i], 16)) : half_of(words[i]));
      vf_store(out[2 * i + 1], type == MK_BF16 ? vi_as_float(vi_and(words[i], vi_set((int32_t)0xffff0000))) : half_of(vi_right(words[i], 16)));
    }
  }
}
#endif

/* Their words, outputs in lanes. */
static void group_words(const struct groups* g, vi words[16]) {
#if defined(__AVX512VNNI__)
  if (g->bytes <= 32 && turnable(g)) {
    vi_turn(g->base + g->row * (size_t)g->n0 + g->at, g->row, words);
    return;
  }
#endif
  const struct panel p = panel_of(g->base, g->row, g->n0, g->n);
  vi_transpose(p.rows, g->at, g->bytes, p.end, words);
}

static void group_floats(const struct groups* g, int type, int e8m0, float (*out)[LANES]) {
#if defined(__AVX512VNNI__)
  if ((type == MK_BF16 || type == MK_F16) && turnable(g)) {
    if (type == MK_BF16) turn_halves(g, out, MK_BF16);
    else turn_halves(g, out, MK_F16);
    return;
  }
#endif
  vi words[16];
  group_words(g, words);
  floats_of(words, g->bytes, type, e8m0, out);
}

static void unpack_groups(const struct mk_matrix* w, int n0, int first, int count, float (*scales)[LANES], float (*biases)[LANES]) {
  const int size = scale_bytes(w), groups = (count + w->group - 1) / w->group;
  struct groups of = {w->scales, (size_t)(w->k / w->group) * size, (size_t)(first / w->group) * size, groups * size, n0, w->n};
  group_floats(&of, w->type, w->kind == MK_MXFP4, scales);
  if (w->kind == MK_AFFINE) {
    of.base = w->biases;
    group_floats(&of, w->type, 0, biases);
    return;
  }
  for (int g = 0; g < groups; g++) { /* codes are doubled and moved up */
    const vf scale = vf_mul(vf_load(scales[g]), vf_set(.5f));
    vf_store(scales[g], scale);
    vf_store(biases[g], vf_mul(scale, vf_set(-FP4_OFFSET)));
  }
}

/* Are its codes above 127? */
static int are_lowered(const struct mk_matrix* w) {
  return mk_is_blocks(w) ? w->kind >= MK_IQ4_XS : w->bits == 8;
}

/* Do so many rows go by registers alone, without a slab of codes? */
static int are_few(const struct mk_matrix* w, int rows) {
  if (mk_is_blocks(w)) return w->kind != MK_IQ4_NL && rows <= FEW_WITH_BLOCKS;
  if (w->bits != 4 && w->bits != 8) return 0;
  if (mk_block(w) < 32 || (WORD == 2 && w->bits == 8)) return rows <= 2;
  return rows <= FEW;
}

#define WITH(way, rows, ...) way(s, p, at, x, ldx, w->k, sums, __VA_ARGS__, rows)
#define BY_TWO(way, ...) rows == 1 ? WITH(way, 1, __VA_ARGS__) : WITH(way, 2, __VA_ARGS__)
#define BY_FOUR(way, ...)                                                                     \
  rows == 1   ? WITH(way, 1, __VA_ARGS__)                                                     \
  : rows == 2 ? WITH(way, 2, __VA_ARGS__)                                                     \
  : rows == 3 ? WITH(way, 3, __VA_ARGS__)                                                     \
              : WITH(way, FEW < 4 ? FEW : 4, __VA_ARGS__)

/* Codes of 8 bits, of which a register holds half as many where words are of 16 bits. */
#if defined(__AVXVNNI__) || MK_SDOT
#define BY_BYTES BY_FOUR
#else
#define BY_BYTES BY_TWO
#endif

#if defined(__AVX512VNNI__)
/* Functions of their own: of all in one GCC makes worse code. */
#define PASSES(name, bits, fp4, block) PASS_OF(name, 1, bits, fp4, block) PASS_OF(name, 2, bits, fp4, block) \
                                       PASS_OF(name, 3, bits, fp4, block) PASS_OF(name, 4, bits, fp4, block)
#define PASS_OF(name, R, ...)                                                                                                      \
  static __attribute__((noinline)) void name##_##R(const struct slab* s, const struct panel* p, size_t at, const char* x, size_t ldx, \
                                                   int k, float* sums, int ahead) {                                                \
    few_vnni(s, p, at, x, ldx, k, sums, ahead, __VA_ARGS__, R);                                                                    \
  }
PASSES(pass_4_64, 4, 0, 64) PASSES(pass_4_32, 4, 0, 32) PASSES(pass_fp4, 4, 1, 32) PASSES(pass_8_64, 8, 0, 64) PASSES(pass_8_32, 8, 0, 32)

typedef void pass_of(const struct slab* s, const struct panel* p, size_t at, const char* x, size_t ldx, int k, float* sums, int ahead);

static pass_of* pass_for(const struct mk_matrix* w, int block, int rows) {
#define BY_ROWS(name) ((pass_of* const[PASS]){name##_1, name##_2, name##_3, name##_4})[rows - 1]
  if (block == 64) return w->bits == 8 ? BY_ROWS(pass_8_64) : BY_ROWS(pass_4_64);
  if (w->bits == 8) return BY_ROWS(pass_8_32);
  return w->kind == MK_AFFINE ? BY_ROWS(pass_4_32) : BY_ROWS(pass_fp4);
#undef BY_ROWS
}
#endif

static void few_codes(const struct mk_matrix* w, const struct slab* s, const struct panel* p, size_t at, const char* x,
                      size_t ldx, int rows, float* sums) {
#if defined(__AVX512VNNI__)
  if (s->block == 16) { /* nvfp4 */
    BY_TWO(few, 4, 1);
    return;
  }
  const int first = rows > PASS ? (rows + 1) / 2 : rows;
  pass_for(w, s->block, first)(s, p, at, x, ldx, w->k, sums, 1);
  if (rows == first) return;
  pass_for(w, s->block, rows - first)(s, p, at, x + first * ldx, ldx, w->k, sums + first * MK_STRIP, 0);
#elif defined(__AVX2__) || MK_SDOT
  if (s->block == 64) {
    w->bits == 8 ? BY_BYTES(few_along, 8, 0, 64) : BY_FOUR(few_along, 4, 0, 64);
#if defined(__AVXVNNI__) || MK_SDOT
  } else if (s->block == 32 && w->bits == 8) {
    BY_FOUR(few_along, 8, 0, 32);
#endif
  } else if (s->block == 32 && w->bits == 4) {
    w->kind == MK_AFFINE ? BY_FOUR(few_along, 4, 0, 32) : BY_FOUR(few_along, 4, 1, 32);
  } else {
    w->bits == 8 ? BY_TWO(few, 8, 0) : BY_TWO(few, 4, 1);
  }
#else
  w->bits == 8 ? BY_TWO(few, 8, 0) : w->kind == MK_AFFINE ? BY_TWO(few, 4, 0) : BY_TWO(few, 4, 1);
#endif
}

/* How many elements of k are taken at a time: as many as their codes, or one register of their scales, have room for. */
static int slab_of(const struct mk_matrix* w, int few) {
  int most = few ? 2 * MK_SLAB : MK_SLAB;
  if (mk_is_blocks(w)) return most;
  while (most / w->group * scale_bytes(w) > 64) most /= 2;
  const int slabs = (w->k + most - 1) / most;
  return ((w->k + slabs - 1) / slabs + 127) / 128 * 128;
}

/* Where element `k` of a row begins, which begins a block if there are some. */
static size_t byte_of(const struct mk_matrix* w, int k) {
  if (!mk_is_blocks(w)) return (size_t)k * w->bits / 8;
  const struct mk_blocks is = mk_blocks_of(w->kind);
  return (size_t)(k / is.weights * is.bytes);
}

static void strip(const struct mk_matrix* w, int n0, const char* x, size_t ldx, int rows, float* sums, struct mk_calls* calls) {
  const int few = are_few(w, rows), most = slab_of(w, few);
  struct slab s; /* not zeroed as a whole: that would take as long as a product of one row */
  s.block = mk_block(w), s.per_group = w->group / mk_block(w), s.lowered = are_lowered(w);
  memset(sums, 0, (size_t)rows * MK_STRIP * 4);
  if (few && mk_is_blocks(w)) {
    if (calls) call_some(calls, calls->count);
    COLUMN(few_blocks).strip(w, n0, x, ldx, rows, sums);
    return;
  }
  const int together = few ? 1 : PANELS, within = few && mk_block(w) >= 32 ? calls_of_row(w->k * w->bits / 8, rows) : 0;
  const int times = (within ? within : (w->k + most - 1) / most) * (MK_STRIP / LANES / together);
  s.calls = calls, s.each = calls ? (calls->count + times - 1) / times : 0;
  for (int p0 = 0; p0 < MK_STRIP / LANES; p0 += together) {
    struct panel panels[PANELS];
    for (int p = 0; p < together; p++) panels[p] = panel_of(w->codes, (size_t)w->stride, n0 + (p0 + p) * LANES, w->n);
    if (!mk_is_blocks(w)) fetch_groups(w, n0 + (p0 + together) * LANES, together);
    for (s.first = 0; s.first < w->k; s.first += s.count) {
      s.count = w->k - s.first < most ? w->k - s.first : most;
      const size_t at = byte_of(w, s.first);
      if (calls && !within) call_some(calls, s.each);
      for (int p = 0; p < together; p++) {
        if (mk_is_blocks(w)) {
          unpack_blocks(w, &panels[p], at, s.count, s.codes[p], s.scales[p], s.biases[p]);
          continue;
        }
        unpack_groups(w, n0 + (p0 + p) * LANES, s.first, s.count, s.scales[p], s.biases[p]);
        if (!few) unpack_codes(w, &panels[p], at, s.count * w->bits / 8, together, s.codes[p]);
      }
      if (few) {
        few_codes(w, &s, panels, at, x, ldx, rows, sums + p0 * LANES);
        continue;
      }
      pair_words(&s);
      tiles(&s, x, ldx, w->k, rows, sums + p0 * LANES);
    }
  }
}

static vf added_of(const struct mk_matrix* w, int n) {
  if (w->added_type == MK_BF16) return vf_bf16((const uint16_t*)w->added + n);
  if (w->added_type == MK_F16) return vf_f16((const uint16_t*)w->added + n);
  return vf_load((const float*)w->added + n);
}

static void finish(const struct mk_matrix* w, int n0, int n, const float* sums, const float* residual, float* y) {
  for (int i = 0; i < n; i += LANES) {
    const int left = n - i;
    struct mk_matrix some = *w;
    char copy[64] = {0};
    int from = n0 + i;
    if (w->added && left < LANES) { /* nothing behind its end is read */
      const int size = w->added_type == MK_F32 ? 4 : 2;
      some.added = memcpy(copy, (const char*)w->added + (size_t)from * size, (size_t)left * size);
      from = 0;
    }
    vf v = vf_load(sums + i);
    if (w->added) v = vf_add(v, added_of(&some, from));
    if (residual) v = vf_add(v, left < LANES ? vf_load_some(residual + i, left) : vf_load(residual + i));
    if (left < LANES) vf_store_some(y + i, v, left);
    else vf_store(y + i, v);
  }
}

const struct products INTEGER_COLUMN(products) = {quantize, strip, finish};
