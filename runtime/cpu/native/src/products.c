#include "products.h"
#include "products_codes.h"

#if defined(__AVX512VNNI__)
enum { PANELS = 2, TILE = 8 }; /* panels and rows whose sums stay in registers */
#else
enum { PANELS = 1, TILE = 4 };
#endif

/* The greatest code of x: 256 * 127 + 127, so that both its bytes are signed ones. A sum over a block stays below 2^31:
 * 64 elements * 255 * 32639. */
static const float MOST = 32639.f;
/* Where all of a block is smaller it counts as zeros; its scale could not be inverted. */
static const float LEAST = 1e-30f;

/* Codes of a block in their order: two of 16 bits in a word; or all high bytes, then all low ones. */
static void place(const int16_t* codes, int block, const uint8_t order[32], char* out) {
#if defined(__AVX512VNNI__)
  const __m512i to = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)order));
  for (int i = 0; i < block; i += 32) {
    const __m512i v = _mm512_permutexvar_epi16(to, _mm512_loadu_si512(codes + i));
    const __m256i high = _mm512_cvtepi16_epi8(_mm512_srai_epi16(_mm512_add_epi16(v, _mm512_set1_epi16(128)), 8));
    if (block == 16) { /* half a unit: its elements stand in the first half in every order */
      _mm_storeu_si128((__m128i*)out, _mm256_castsi256_si128(high));
      _mm_storeu_si128((__m128i*)(out + 16), _mm256_castsi256_si128(_mm512_cvtepi16_epi8(v)));
    } else {
      _mm256_storeu_si256((__m256i*)(out + i), high);
      _mm256_storeu_si256((__m256i*)(out + block + i), _mm512_cvtepi16_epi8(v));
    }
  }
#else
  int16_t* words = (int16_t*)out;
  for (int i = 0; i < block; i++) words[i] = codes[(i & ~31) + order[i & 31]];
#endif
}

static void quantize(const float* x, int k, int bits, int block, char* quantized) {
  const int blocks = k / block;
  float *scales = (float*)(quantized + (size_t)(k + 31) / 32 * 64), *sums = scales + blocks;
  uint8_t order[32];
  order_of(bits, order);
  for (int b = 0; b < blocks; b++, x += block, quantized += 2 * block) {
    int16_t codes[64] = {0};
    vi most = vi_set(0), sum = vi_set(0);
    for (int i = 0; i < block; i += LANES) /* as whole numbers sizes have the order of floats, and NaN is above all */
      most = vi_max(most, vi_and(vi_of_float(vf_load(x + i)), vi_set(0x7fffffff)));
    const int32_t bits_of_most = vi_greatest(most);
    float size;
    memcpy(&size, &bits_of_most, 4);
    const int finite = bits_of_most < 0x7f800000;
    const vf by = vf_set(finite && size > LEAST ? MOST / size : 0);
    for (int i = 0; finite && i < block; i += LANES) {
      const vi c = vi_nearest(vf_mul(vf_load(x + i), by));
      sum = vi_add(sum, c);
      vi_narrow(codes + i, c);
    }
    scales[b] = !finite ? __builtin_nanf("") : size > LEAST ? size / MOST : 0;
    sums[b] = scales[b] * (float)vi_sum(sum);
    place(codes, block, order, quantized);
  }
}

/* What lies between elements `first` and `first + count` of a strip's rows. */
struct slab {
  _Alignas(64) int32_t codes[PANELS][MK_SLAB / WORD][LANES];
  float scales[PANELS][MK_SLAB / 16][LANES], biases[PANELS][MK_SLAB / 16][LANES];
  int block, group, first, count;
};

INLINE int32_t word(const char* p) {
  int32_t w;
  memcpy(&w, p, 4);
  return w;
}

/* R rows from x on times a slab, added to sums. */
INLINE void tile(const struct slab* s, const char* x, size_t ldx, int k, float* sums, const int R) {
  const int block = s->block, words = block / WORD, first = s->first / block;
  const float* scales = (const float*)(x + (size_t)(k + 31) / 32 * 64) + first;
  const size_t ld = ldx / 4, to_sums = (size_t)(k / block);
  x += (size_t)first * 2 * block;
  for (int b = 0; b * block < s->count; b++, x += 2 * block, scales++) {
    vi sum[TILE][PANELS];
    const int32_t(*codes[PANELS])[LANES];
    UNROLL for (int p = 0; p < PANELS; p++) codes[p] = s->codes[p] + b * words;
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) sum[r][p] = vi_set(0);
#if defined(__AVX512VNNI__)
    if (R <= 4) { /* both bytes in one pass, which gives more sums to work on at a time */
      vi low[4][PANELS];
      UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) low[r & 3][p] = vi_set(0);
      for (int t = 0; t < words; t++) UNROLL for (int p = 0; p < PANELS; p++) {
        const vi c = vi_load(codes[p][t]);
        UNROLL for (int r = 0; r < R; r++) {
          sum[r][p] = vi_dot(sum[r][p], c, word(x + r * ldx + 4 * t));
          low[r & 3][p] = vi_dot(low[r & 3][p], c, word(x + r * ldx + block + 4 * t));
        }
      }
      UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) sum[r][p] = vi_add(vi_left(sum[r][p], 8), low[r & 3][p]);
    } else {
      for (int half = 0; half < 2; half++) {
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) sum[r][p] = vi_left(sum[r][p], 8);
        for (int t = 0; t < words; t++) {
          vi c[PANELS];
          UNROLL for (int p = 0; p < PANELS; p++) c[p] = vi_load(codes[p][t]);
          UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++)
            sum[r][p] = vi_dot(sum[r][p], c[p], word(x + r * ldx + half * block + 4 * t));
        }
      }
    }
#else
    for (int t = 0; t < words; t++) {
      vi c[PANELS];
      UNROLL for (int p = 0; p < PANELS; p++) c[p] = vi_load(codes[p][t]);
      UNROLL for (int r = 0; r < R; r++) UNROLL for (int p = 0; p < PANELS; p++) sum[r][p] = vi_dot(sum[r][p], c[p], word(x + r * ldx + 4 * t));
    }
#endif
    const int g = b * block / s->group;
    UNROLL for (int p = 0; p < PANELS; p++) {
      const vf scale = vf_load(s->scales[p][g]), bias = vf_load(s->biases[p][g]);
      UNROLL for (int r = 0; r < R; r++) {
        float* to = sums + r * MK_STRIP + p * LANES;
        vf a = vf_fma(vi_float(sum[r][p]), vf_mul(vf_set(scales[r * ld]), scale), vf_load(to));
        vf_store(to, vf_fma(bias, vf_set(scales[r * ld + to_sums]), a));
      }
    }
  }
}

static void tiles(const struct slab* s, const char* x, size_t ldx, int k, int rows, float* sums) {
  for (int r = 0, n; r < rows; r += n, x += (size_t)n * ldx, sums += n * MK_STRIP) {
    n = rows - r;
    if (TILE == 8 && n >= 8) tile(s, x, ldx, k, sums, TILE), n = 8;
    else if (n >= 4) tile(s, x, ldx, k, sums, 4), n = 4;
    else if (n >= 2) tile(s, x, ldx, k, sums, 2), n = 2;
    else tile(s, x, ldx, k, sums, 1);
  }
}

static void unpack_codes(const struct mk_matrix* w, const struct panel* p, size_t at, int bytes, size_t ahead, int32_t (*out)[LANES]) {
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

static void unpack_groups(const struct mk_matrix* w, int n0, int first, int count, float (*scales)[LANES], float (*biases)[LANES]) {
  const int size = w->type == MK_U8 ? 1 : w->type == MK_F32 ? 4 : 2, groups = (count + w->group - 1) / w->group;
  const size_t row = (size_t)(w->k / w->group) * size, at = (size_t)(first / w->group) * size;
  struct panel p = panel_of(w->scales, row, n0, w->n);
  unpack_floats(&p, at, groups * size, w->type, w->kind == MK_MXFP4, scales);
  if (w->kind == MK_AFFINE) {
    p = panel_of(w->biases, row, n0, w->n);
    unpack_floats(&p, at, groups * size, w->type, 0, biases);
    return;
  }
  for (int g = 0; g < groups; g++) { /* codes are doubled and moved up */
    const vf scale = vf_mul(vf_load(scales[g]), vf_set(.5f));
    vf_store(scales[g], scale);
    vf_store(biases[g], vf_mul(scale, vf_set(-FP4_OFFSET)));
  }
}

static void strip(const struct mk_matrix* w, int n0, const char* x, size_t ldx, int rows, float* sums) {
  const int slabs = (w->k + MK_SLAB - 1) / MK_SLAB, most = ((w->k + slabs - 1) / slabs + 127) / 128 * 128;
  const size_t row = (size_t)w->k * w->bits / 8;
  struct slab s = {.block = mk_block(w), .group = w->group};
  memset(sums, 0, (size_t)rows * MK_STRIP * 4);
  for (int p0 = 0; p0 < MK_STRIP / LANES; p0 += PANELS) {
    struct panel panels[PANELS];
    for (int p = 0; p < PANELS; p++) panels[p] = panel_of(w->codes, row, n0 + (p0 + p) * LANES, w->n);
    for (s.first = 0; s.first < w->k; s.first += s.count) {
      s.count = w->k - s.first < most ? w->k - s.first : most;
      const size_t at = (size_t)s.first * w->bits / 8, bytes = (size_t)s.count * w->bits / 8;
      /* The next slab of these rows, or the first one of those that follow. */
      const size_t ahead = s.first + s.count < w->k ? bytes : row * LANES * PANELS - at;
      for (int p = 0; p < PANELS; p++) {
        unpack_codes(w, &panels[p], at, (int)bytes, ahead, s.codes[p]);
        unpack_groups(w, n0 + (p0 + p) * LANES, s.first, s.count, s.scales[p], s.biases[p]);
      }
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

const struct products COLUMN(products) = {quantize, strip, finish};
