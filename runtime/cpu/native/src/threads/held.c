#include "threads/held.h"
#include <stdlib.h>

void* mk_hold(struct mk_held* held, size_t bytes) {
  if (bytes <= held->bytes) return held->at;
  free(held->at);
  held->bytes = 0;
  if (posix_memalign(&held->at, 64, bytes)) abort();
  held->bytes = bytes;
  return held->at;
}
