/* Memory that a thread keeps for its next job of one kind, whatever room it is in (`room.h`). Nobody gives it back: threads of the
 * pool never end, and those of MLX's streams are handed on. */
#pragma once
#include <stddef.h>

/* Each is a _Thread_local of its own; {0} at first. */
struct mk_held {
  void* at;
  size_t bytes;
};
/* At least so many bytes, on lines of the cache: those of before, as they were left, or new ones. Ends the process where there is no
 * memory, as MLX does, since nobody could say so from here. */
void* mk_hold(struct mk_held* held, size_t bytes);
