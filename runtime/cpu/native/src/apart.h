/* Keeping a thread that prepares work off the processor of the one that computes it.
 *
 * A scheduler may wake the one that prepares where its last result was computed, even while another processor idles: some
 * take it for busy, as its helper spins, or as it is a virtual one. Then what is next waits until all of that is prepared,
 * though it was there before, and of a small model's tokens that is a third of the time.
 */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
/* If the calling thread runs on this processor, it goes to another and stays off this one until it is let back, or told of
 * another one. 1 where it went; 0 where it was elsewhere, may use no other, or the system cannot tell. Costs nothing then. */
int mk_keep_off(int processor);
void mk_let_back(void); /* the calling thread may run again where it was allowed to before */
#ifdef __cplusplus
}
#endif
