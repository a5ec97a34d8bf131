/* One source, one column per instruction set.
 *
 * A kernel file is compiled once for each column of its machine, with MK_COLUMN set to that column's name, and
 * defines one table of functions, COLUMN(norms) = norms_avx512 and so on. Callers hold no column: they ask
 * `mk_column()` which index the process computes by, and look into an array made by ALL_COLUMNS. Tables of dot products of
 * whole numbers, INTEGER_COLUMN(products), have a column more on x86: AVX2 with vpdpbusd. The others have AVX2's there.
 *
 * The contract of every kernel: a row of the answer is computed by the same operations in the same order, however
 * many rows are asked for, whichever thread does it and, on x86, in whichever column. So sums have a fixed order,
 * a * b + c is always fused (vf_fma) where it is written so and never where it is not (-ffp-contract=off), and
 * nothing of libm is called: its answers differ between machines.
 */
#pragma once

#if defined(__x86_64__)
enum { MK_PLAIN, MK_AVX2, MK_AVXVNNI, MK_AVX512, MK_COLUMNS };
#define ALL_COLUMNS(table) {&table##_plain, &table##_avx2, &table##_avx2, &table##_avx512}
#define DECLARE_COLUMNS(type, table) extern const struct type table##_plain, table##_avx2, table##_avx512
#define ALL_INTEGER_COLUMNS(table) {&table##_plain, &table##_avx2, &table##_avxvnni, &table##_avx512}
#define DECLARE_INTEGER_COLUMNS(type, table) \
  DECLARE_COLUMNS(type, table);              \
  extern const struct type table##_avxvnni
#elif defined(__aarch64__)
enum { MK_PLAIN, MK_NEON, MK_COLUMNS };
#define ALL_COLUMNS(table) {&table##_plain, &table##_neon}
#define DECLARE_COLUMNS(type, table) extern const struct type table##_plain, table##_neon
#else
enum { MK_PLAIN, MK_COLUMNS };
#define ALL_COLUMNS(table) {&table##_plain}
#define DECLARE_COLUMNS(type, table) extern const struct type table##_plain
#endif

#if !defined(__x86_64__)
#define ALL_INTEGER_COLUMNS ALL_COLUMNS
#define DECLARE_INTEGER_COLUMNS DECLARE_COLUMNS
#endif

#define MK_JOIN2(a, b) a##_##b
#define MK_JOIN(a, b) MK_JOIN2(a, b)
#define COLUMN(table) MK_JOIN(table, MK_COLUMN)
#define INTEGER_COLUMN COLUMN

#ifdef __cplusplus
extern "C" {
#endif
int mk_column(void);
int mk_use_column(const char* name); /* 0, or -1 where this processor or this build has no such column */
const char* mk_column_name(int column);
int mk_column_runs(int column); /* can this processor compute by it? */
#ifdef __cplusplus
}
#endif
