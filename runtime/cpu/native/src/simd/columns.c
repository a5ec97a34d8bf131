#include "simd/columns.h"
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

static const char* const names[] = {"plain", "avx2", "avxvnni", "avx512"};

/* vpdpbusd on registers of AVX2, as processors have it that have no AVX-512. Not every compiler knows its name. */
static int has_avxvnni(void) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
}

int mk_column_runs(int column) {
  __builtin_cpu_init();
  if (column == MK_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (column == MK_AVXVNNI) return WITH_AVXVNNI && mk_column_runs(MK_AVX2) && has_avxvnni();
  if (column == MK_AVX512)
    return mk_column_runs(MK_AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
  return column == MK_PLAIN;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

static const char* const names[] = {"plain", "neon", "dotprod", "i8mm"};

/* HWCAP_ASIMDDP and HWCAP2_I8MM, which not every libc has names for. */
enum { HAS_DOTPROD = 1 << 20, HAS_I8MM = 1 << 13 };

int mk_column_runs(int column) {
  const int has_dotprod = (getauxval(AT_HWCAP) & HAS_DOTPROD) != 0, has_i8mm = (getauxval(AT_HWCAP2) & HAS_I8MM) != 0;
  if (column == MK_DOTPROD) return WITH_DOTPROD && has_dotprod;
  if (column == MK_I8MM) return WITH_I8MM && has_dotprod && has_i8mm;
  return column == MK_PLAIN || column == MK_NEON;
}
#else
static const char* const names[] = {"plain"};
int mk_column_runs(int column) { return column == MK_PLAIN; }
#endif

static int chosen = -1;

int mk_column(void) {
  if (chosen < 0) {
    int best = MK_COLUMNS - 1;
    while (!mk_column_runs(best)) best--;
    chosen = best;
  }
  return chosen;
}

int mk_use_column(const char* name) {
  for (int i = 0; i < MK_COLUMNS; i++)
    if (!strcmp(names[i], name) && mk_column_runs(i)) {
      chosen = i;
      return 0;
    }
  return -1;
}

const char* mk_column_name(int column) { return names[column]; }
