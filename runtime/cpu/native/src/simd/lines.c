#include "simd/lines.h"

int mk_to_second_cache;

#if defined(__x86_64__)
#include <cpuid.h>

enum { ZEN_5 = 0x1a };

/* AMD's before Zen 5. */
__attribute__((constructor)) static void look(void) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || c != signature_AMD_ecx || d != signature_AMD_edx) return;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return;
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff); /* the second part counts where the first one is full, as in all of Zen */
  mk_to_second_cache = family < ZEN_5;
}
#endif
