/* Rows of x as whole numbers of 16 bits, with one scale per block. */
#pragma once
#include "products/codes.h"

/* The greatest code of x: 256 * 127 + 127, so that both its bytes are signed ones. A sum over a block stays below 2^31:
 * 64 elements * 255 * 32639. */
static const float MOST = 32639.f;
/* Where all of a block is smaller it counts as zeros; its scale could not be inverted. */
static const float LEAST = 1e-30f;

#if defined(__AVX2__) && !defined(__AVX512F__)
/* The low bytes of 32 numbers, in their order. */
INLINE __m256i put_in_order(__m256i a, __m256i b, const uint8_t order[32]) {
  const __m256i byte = _mm256_set1_epi16(255), to = _mm256_loadu_si256((const __m256i*)order);
  const __m256i all = _mm256_permute4x64_epi64(_mm256_packus_epi16(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte)), 0xd8);
  /* A shuffle finds what lies in its own half, and gives 0 where the index has its highest bit. */
  const __m256i first = _mm256_permute2x128_si256(all, all, 0x00), second = _mm256_permute2x128_si256(all, all, 0x11);
  const __m256i in_first = _mm256_or_si256(to, _mm256_cmpgt_epi8(to, _mm256_set1_epi8(15))), in_second = _mm256_sub_epi8(to, _mm256_set1_epi8(16));
  return _mm256_or_si256(_mm256_shuffle_epi8(first, in_first), _mm256_shuffle_epi8(second, in_second));
}
#endif

#if MK_SDOT
INLINE void put_eights(int8x16_t high, int8x16_t low, char* out) {
  const int64x2_t a = vreinterpretq_s64_s8(high), b = vreinterpretq_s64_s8(low);
  vst1q_s64((int64_t*)out, vzip1q_s64(a, b)), vst1q_s64((int64_t*)out + 2, vzip2q_s64(a, b));
}
#endif

/* Codes of a block in their order: two of 16 bits in a word; or bytes as `meet.h` has them. */
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
#elif defined(__AVX2__)
  for (int i = 0; i < block; i += 32) {
    const __m256i v = _mm256_loadu_si256((const __m256i*)(codes + i)), w = _mm256_loadu_si256((const __m256i*)(codes + i + 16));
#if defined(__AVXVNNI__)
    const __m256i half = _mm256_set1_epi16(128);
    const __m256i high = put_in_order(_mm256_srai_epi16(_mm256_add_epi16(v, half), 8), _mm256_srai_epi16(_mm256_add_epi16(w, half), 8), order);
    const __m256i low = put_in_order(v, w, order);
    if (block == 16) { /* as above */
      _mm_storeu_si128((__m128i*)out, _mm256_castsi256_si128(high)), _mm_storeu_si128((__m128i*)out + 1, _mm256_castsi256_si128(low));
    } else {
      _mm256_storeu_si256((__m256i*)(out + i), high), _mm256_storeu_si256((__m256i*)(out + block + i), low);
    }
#else
    const __m256i high = _mm256_permute4x64_epi64(put_in_order(_mm256_srli_epi16(v, 8), _mm256_srli_epi16(w, 8), order), 0xd8);
    const __m256i low = _mm256_permute4x64_epi64(put_in_order(v, w, order), 0xd8);
    _mm256_storeu_si256((__m256i*)(out + 2 * i), _mm256_unpacklo_epi8(low, high));
    if (block > 16) _mm256_storeu_si256((__m256i*)(out + 2 * i) + 1, _mm256_unpackhi_epi8(low, high));
#endif
  }
#elif MK_SDOT
  const uint8x16_t first = vld1q_u8(order), second = vld1q_u8(order + 16);
  for (int i = 0; i < block; i += 32) {
    int8x16x2_t high, low;
    UNROLL for (int h = 0; h < 2; h++) {
      const int16x8_t v = vld1q_s16(codes + i + 16 * h), w = vld1q_s16(codes + i + 16 * h + 8);
      high.val[h] = vcombine_s8(vrshrn_n_s16(v, 8), vrshrn_n_s16(w, 8)), low.val[h] = vcombine_s8(vmovn_s16(v), vmovn_s16(w));
    }
    put_eights(vqtbl2q_s8(high, first), vqtbl2q_s8(low, first), out + 2 * i);
    if (block > 16) put_eights(vqtbl2q_s8(high, second), vqtbl2q_s8(low, second), out + 2 * i + 32); /* as above */
  }
#else
  int16_t* words = (int16_t*)out;
  for (int i = 0; i < block; i++) words[i] = codes[(i & ~31) + order[i & 31]];
#endif
}

static void quantize(const float* x, int k, int bits, int block, char* quantized) {
  const int blocks = k / block;
  float *scales = (float*)(quantized + (size_t)(k + 31) / 32 * 64), *sums = scales + blocks;
  int32_t* raise = (int32_t*)(sums + blocks); /* for `raised` */
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
    const int32_t all = vi_sum(sum);
    sums[b] = scales[b] * (float)all;
    if (SIGNED) raise[b] = 128 * all;
    place(codes, block, order, quantized);
  }
}
