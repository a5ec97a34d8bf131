/* Logits changed by the ids that stand before them (runtime/sampling/penalties.py): a repeat penalty acts on the logit as it
 * came, then presence and frequency are taken off, each in a rounding of its own. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct mk_penalty {
  float repeat, presence, frequency;
  int64_t window;      /* ids that are looked back on */
  const int32_t* past; /* those before the step, of which the last `count` are here */
  int64_t count;
};

#ifdef __cplusplus
extern "C" {
#endif
/* x: `columns` rows of `size` logits of one sequence, in place. Column c looks back on what is past and on the first
 * own + c of the inputs; ids that are none of the logits' count for nothing. */
void mk_penalise(const struct mk_penalty* by, const int32_t* inputs, int own, float* x, int columns, int size);
#ifdef __cplusplus
}
#endif
