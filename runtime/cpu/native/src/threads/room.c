#include "threads/room.h"
#include <stdlib.h>

enum { MUCH = 1 << 16, MOST = 64 }; /* bytes that the C library keeps by itself; blocks that a room keeps */

struct block {
  void* at;
  size_t bytes;
};
static _Thread_local struct block spare[MOST];
static _Thread_local int spares, rooms;

void* mk_take(size_t* bytes) {
  int best = -1;
  for (int i = 0; *bytes >= MUCH && i < spares; i++)
    if (spare[i].bytes >= *bytes && (best < 0 || spare[i].bytes < spare[best].bytes)) best = i;
  if (best >= 0) {
    const struct block found = spare[best];
    spare[best] = spare[--spares];
    *bytes = found.bytes;
    return found.at;
  }
  void* made;
  if (posix_memalign(&made, 64, *bytes ? *bytes : 64)) abort();
  return made;
}

void mk_give(void* block, size_t bytes) {
  if (rooms && bytes >= MUCH && spares < MOST) spare[spares++] = (struct block){block, bytes};
  else free(block);
}

void mk_enter_room(void) { rooms++; }

void mk_leave_room(void) {
  if (--rooms) return;
  while (spares) free(spare[--spares].at);
}
