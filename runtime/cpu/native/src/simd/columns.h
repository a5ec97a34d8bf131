/* One source, one column per instruction set.
 *
 * A kernel file is compiled once for each column of its machine, with MK_COLUMN set to that column's name, and
 * defines one table of functions, COLUMN(norms) = norms_avx512 and so on. Callers hold no column: they ask
 * `mk_column()` which index the process computes by, and look into an array made by ALL_COLUMNS. Tables of dot products of
 * whole numbers, INTEGER_COLUMN(products), have more columns: AVX2 with vpdpbusd on x86; on ARM NEON with sdot, and with usmmla.
 * The others have AVX2's or NEON's there. So have all where the compiler does not know the instructions (`building.py`), and no
 * processor runs that column then.
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
#if defined(MK_NO_AVXVNNI)
enum { WITH_AVXVNNI = 0 };
#define IN_AVXVNNI(table) table##_avx2
#else
enum { WITH_AVXVNNI = 1 };
#define IN_AVXVNNI(table) table##_avxvnni
#endif
#define ALL_INTEGER_COLUMNS(table) {&table##_plain, &table##_avx2, &IN_AVXVNNI(table), &table##_avx512}
#define DECLARE_INTEGER_COLUMNS(type, table) \
  DECLARE_COLUMNS(type, table);              \
  extern const struct type IN_AVXVNNI(table)
#elif defined(__aarch64__)
enum { MK_PLAIN, MK_NEON, MK_DOTPROD, MK_I8MM, MK_COLUMNS };
#define ALL_COLUMNS(table) {&table##_plain, &table##_neon, &table##_neon, &table##_neon}
#define DECLARE_COLUMNS(type, table) extern const struct type table##_plain, table##_neon
#if defined(MK_NO_DOTPROD)
enum { WITH_DOTPROD = 0 };
#define IN_DOTPROD(table) table##_neon
#else
enum { WITH_DOTPROD = 1 };
#define IN_DOTPROD(table) table##_dotprod
#endif
#if defined(MK_NO_I8MM)
enum { WITH_I8MM = 0 };
#define IN_I8MM(table) table##_neon
#else
enum { WITH_I8MM = 1 };
#define IN_I8MM(table) table##_i8mm
#endif
#define ALL_INTEGER_COLUMNS(table) {&table##_plain, &table##_neon, &IN_DOTPROD(table), &IN_I8MM(table)}
#define DECLARE_INTEGER_COLUMNS(type, table) \
  DECLARE_COLUMNS(type, table);              \
  extern const struct type IN_DOTPROD(table), IN_I8MM(table)
#else
enum { MK_PLAIN, MK_COLUMNS };
#define ALL_COLUMNS(table) {&table##_plain}
#define DECLARE_COLUMNS(type, table) extern const struct type table##_plain
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
