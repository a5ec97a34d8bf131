#include "products/pairs.h"
#include "digests.h"

enum { ROWS = 5, ADAPTERS = 2, K = 198, N = 203, STRIPS = (N + MK_STRIP - 1) / MK_STRIP };

static const struct mk_member first[] = {{0, 1}}, both[] = {{1, 0.5f}, {0, -2}};
static const int rows_of_first[] = {0, 2, 4}, rows_of_both[] = {1};
static const struct mk_kin kin[] = {{first, rows_of_first, 1, 3}, {both, rows_of_both, 2, 1}};
static const struct mk_members members = {kin, 2, ROWS, 2};

static const void* numbers(size_t count, enum mk_type type) {
  if (type == MK_F32) return floats(count, -1, 1);
  uint16_t* halves = (uint16_t*)bytes(2 * count);
  for (size_t i = 0; i < count; i++) halves[i] = (uint16_t)((halves[i] & 0x83ff) | (type == MK_F16 ? 13u << 10 : 122u << 7)); /* about 1/8 */
  return halves;
}

static struct mk_pairs pairs_of(int rank, enum mk_type type, int vectors) {
  static const int places[] = {0, 1};
  struct mk_pairs p = {.places = places, .adapters = ADAPTERS, .known = ADAPTERS, .k = K, .n = N, .rank = rank, .down_type = type, .up_type = type};
  p.down = numbers((size_t)ADAPTERS * K * (size_t)rank, type), p.up = numbers((size_t)ADAPTERS * STRIPS * MK_STRIP * (size_t)rank, type);
  if (vectors) p.factor = floats(ADAPTERS * N, -1, 1), p.bias = floats(ADAPTERS * N, -1, 1), p.own = floats(N, -1, 1);
  return p;
}

static void digest(int rank, enum mk_type type, int vectors, int tokens) {
  static const char* const names[] = {[MK_F32] = "f32", [MK_F16] = "f16", [MK_BF16] = "bf16"};
  const struct mk_pairs pairs[] = {pairs_of(rank, type, vectors), pairs_of(rank, type, vectors)};
  struct mk_matrix w[2];
  for (int m = 0; m < 2; m++)
    w[m] = (struct mk_matrix){.codes = floats(N * K, -1, 1), .n = N, .k = K, .kind = MK_FLOATS, .bits = 32, .type = MK_F32, .stride = K * 4,
                              .added = m ? floats(N, -1, 1) : NULL, .added_type = MK_F32, .pairs = &pairs[m], .members = &members};
  const int rows = ROWS * tokens;
  const size_t count = (size_t)rows * N;
  const float* x = floats((size_t)rows * K, -1, 1);
  const struct mk_output out[] = {{room(count), N, floats(count, -1, 1)}, {room(count), N, NULL}};
  mk_products(w, out, 2, x, K, rows);
  for (int m = 0; m < 2; m++)
    say_floats(out[m].y, count, "pairs %s rank=%d vectors=%d tokens=%d matrix=%d", names[type], rank, vectors, tokens, m);
  float* gated = room(count);
  mk_gated_products(w, (struct mk_gate){MK_SILU, 0, 0}, gated, x, K, rows);
  say_floats(gated, count, "pairs %s rank=%d vectors=%d tokens=%d gated", names[type], rank, vectors, tokens);
  mk_add_pairs(&w[1], out[1].y, x, rows);
  say_floats(out[1].y, count, "pairs %s rank=%d vectors=%d tokens=%d added", names[type], rank, vectors, tokens);
}

void digest_pairs(void) {
  static const enum mk_type types[] = {MK_F32, MK_F16, MK_BF16};
  for (int t = 0; t < 3; t++)
    for (int tokens = 1; tokens <= 37; tokens += 4) digest(tokens % 3 ? 16 : 21, types[t], tokens % 8 == 1, tokens);
}
