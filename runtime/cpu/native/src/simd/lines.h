/* Lines of weights that are asked for before they are worked on: waiting for memory is most of a product with few rows.
 *
 * A core has few places for lines that are on their way to its first cache, 24 on Zen 4, each taken for as long as memory
 * takes: 12 GB/s, where a plain loop reads 33, as the second cache has more of them and asks by itself. So there, lines come
 * no further than that beforehand: bf16 10 -> 20 GB/s on one thread, 8 bits 10 -> 18. On Zen 5 they come faster by half as a
 * load would bring them, and so they do wherever nobody has measured.
 */
#pragma once
#include "simd/registers.h"

extern int mk_to_second_cache; /* set once, when the library is loaded */

/* `count`, a constant, of them from here on. One at a time, between what is computed, is best: those that find all places
 * taken are dropped (GB/s, sixteen at once -> one: bf16 17 -> 19, 4 bits 13 -> 14.5, 8 bits 16 -> 17.5). */
INLINE void bring_lines(const char* line, const int count) {
  if (mk_to_second_cache) {
    _Pragma("GCC unroll 32") for (int i = 0; i < count; i++) __builtin_prefetch(line + 64 * i, 0, 2);
  } else {
    _Pragma("GCC unroll 32") for (int i = 0; i < count; i++) __builtin_prefetch(line + 64 * i);
  }
}

enum { MK_CALLS = 256 };

/* Lines of something else that is read soon, asked for while a strip is computed: few at a time, since a core that is asked for
 * more of them than it can await stands still. */
struct mk_calls {
  int count, done;
  const char* lines[MK_CALLS];
};

INLINE void call_some(struct mk_calls* calls, int most) {
  for (; most > 0 && calls->done < calls->count; most--) bring_lines(calls->lines[calls->done++], 1);
}
