/* Every kernel on inputs that are the same on every machine, and a digest of the bits that come out.
 *
 * One file per topic; its function calls what the nodes call, so the column is the one that the process computes by,
 * and says each result by `say`. Memory from `floats` and `bytes` is never given back: the program is short.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

uint32_t any_bits(void);                        /* the next ones of a fixed sequence */
float any_float(float low, float high);         /* within, multiples of a 2^24th part of the range */
float* floats(size_t count, float low, float high);
float* room(size_t count);                      /* to be filled by a kernel; begins as 0 */
uint8_t* bytes(size_t count);
int* counts(int rows, int most);                /* 0 .. most each */

/* name is printf's; NaNs count as one, since machines make them with either sign. */
void say_floats(const float* y, size_t count, const char* name, ...) __attribute__((format(printf, 3, 4)));
void say_bytes(const void* y, size_t count, const char* name, ...) __attribute__((format(printf, 3, 4)));

void digest_draws(void);
void digest_norms(void);
void digest_pairs(void);
void digest_products(void);
void digest_quantize(void);
void digest_convolution(void);
void digest_recurrences(void);
void digest_attention(void);
void digest_mixtures(void);
