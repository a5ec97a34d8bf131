/* Where threads run: one that prepares work off the processor of the one that computes it, and processes that compute
 * together each on processors of its own.
 *
 * A scheduler may wake the one that prepares where its last result was computed, even while another processor idles: some
 * take it for busy, as its helper spins, or as it is a virtual one. Then what is next waits until all of that is prepared,
 * though it was there before, and of a small model's tokens that is a third of the time. Of processes that compute
 * together it wakes whoever waits for a message where the sender computes: both share a processor while another idles.
 */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
/* If the calling thread runs on this processor, it goes to another and stays off this one until it is let back, or told of
 * another one. 1 where it went; 0 where it was elsewhere, may use no other, or the system cannot tell. Costs nothing then. */
int mk_keep_off(int processor);
void mk_let_back(void); /* the calling thread may run again where it was allowed to before */

/* The calling thread runs on these processors alone, as far as it may use them; count 0: where it was allowed to before. */
void mk_stay_on(const int* processors, int count);
#ifdef __cplusplus
}
#endif
