#include "attention/attend.h"
#include "attention/attend_products.h"
#include "rows/rope.h"
#include "simd/functions.h"

#define NOTHING (-__builtin_inff())

/* ---- positions ---- */

/* y may be x. */
static void turn(const struct mk_attention* a, const float* x, float* y, int row, int token) {
  const float* table = a->turns + row * a->turns_row + (ptrdiff_t)token * 2 * a->pairs;
  COLUMN(rope).turn(x, table, y, a->pairs, a->size, a->traditional);
}

static void write(const struct mk_attention* a, int row, int token, float* scratch) {
  const struct mk_row* r = &a->row[row];
  const int64_t slot = a->writes_beside ? token : r->start - r->base + token;
  const struct mk_kept* keys = a->writes_beside ? &a->keys_beside : &a->keys;
  const struct mk_kept* values = a->writes_beside ? &a->values_beside : &a->values;
  for (int g = 0; g < a->groups; g++) {
    const float* k = a->new_keys.data + row * a->new_keys.row + g * a->new_keys.head + token * a->new_keys.token;
    const struct mk_lane key = mk_lane_of(keys, row, g);
    if (a->turns) {
      turn(a, k, scratch, row, token);
      k = scratch;
    }
    COLUMN(kept).store(&key, slot, k);
    if (a->values_in_keys) continue;
    const struct mk_lane value = mk_lane_of(values, row, g);
    COLUMN(kept).store(&value, slot,
                       a->new_values.data + row * a->new_values.row + g * a->new_values.head + token * a->new_values.token);
  }
}

static void load_queries(const struct mk_attention* a, struct mk_tile* t) {
  const struct mk_row* r = &a->row[t->row];
  const int shared = a->heads / a->groups, stride = mk_whole(a->size);
  for (int i = 0; i < t->count; i++) {
    const int token = (t->first + i) / shared, head = t->group * shared + (t->first + i) % shared;
    float* q = t->queries + (ptrdiff_t)i * stride;
    memcpy(q, a->queries.data + t->row * a->queries.row + head * a->queries.head + token * a->queries.token, (size_t)a->size * 4);
    for (int j = a->size; j < stride; j++) q[j] = 0;
    if (a->turns) turn(a, q, q, t->row, token);
    for (int j = 0; j < stride; j += LANES) vf_store(q + j, vf_mul(vf_load(q + j), vf_set(a->scale)));
    const int64_t at = r->start + token;
    int64_t from = at - a->before, to = at + a->ahead + 1;
    if (a->chunk && from < at - at % a->chunk) from = at - at % a->chunk;
    t->from[i] = from > r->base ? from : r->base;
    t->to[i] = to < r->stop ? to : r->stop;
  }
}

/* ---- scores to weights ---- */

/* Adds the mask to the scores of a block's slots [low, high) for one query. */
static void add_mask(const struct mk_attention* a, const struct mk_tile* t, int i, int64_t slot, float* scores, int low, int high) {
  const int shared = a->heads / a->groups, token = (t->first + i) / shared, head = t->group * shared + (t->first + i) % shared;
  const ptrdiff_t at = t->row * a->mask_row + head * a->mask_head + token * a->mask_token + (slot + low) * a->mask_key;
  for (int j = low; j < high; j++) {
    const ptrdiff_t place = at + (j - low) * a->mask_key;
    if (!a->mask_is_bool) scores[j] += ((const float*)a->mask)[place];
    else if (!((const uint8_t*)a->mask)[place]) scores[j] = NOTHING;
  }
}

/* One query's scores of a block become weights, of which those outside of [low, high) are 0. Returns what its values
 * so far are to be multiplied by. */
static float weigh(const struct mk_attention* a, const struct mk_tile* t, int i, int64_t slot, int low, int high, float* part) {
  static const float places[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  float* scores = t->scores + (ptrdiff_t)i * MK_BLOCK;
  vf s[MK_BLOCK / LANES];
  if (a->softcap != 0)
    for (int v = 0; v < MK_BLOCK; v += LANES)
      vf_store(scores + v, vf_mul(vf_tanh(vf_div(vf_load(scores + v), vf_set(a->softcap))), vf_set(a->softcap)));
  if (a->mask) add_mask(a, t, i, slot, scores, low, high);
  vf most = vf_set(NOTHING);
  for (int v = 0; v < MK_BLOCK / LANES; v++) {
    const vf place = vf_add(vf_load(places), vf_set((float)(v * LANES)));
    s[v] = vf_if_less(place, vf_set((float)high), vf_load(scores + v * LANES), vf_set(NOTHING));
    s[v] = vf_if_less(place, vf_set((float)low), vf_set(NOTHING), s[v]);
    most = vf_max(most, s[v]);
  }
  float greatest = vf_greatest(most);
  greatest = greatest > part[MK_GREATEST] ? greatest : part[MK_GREATEST];
  const vf off = vf_set(greatest == NOTHING ? 0 : greatest);
  for (int v = 0; v < MK_BLOCK / LANES; v++) {
    s[v] = vf_exp(vf_sub(s[v], off));
    vf_store(scores + v * LANES, s[v]);
  }
  const vf factor = vf_exp(vf_sub(vf_set(part[MK_GREATEST]), off));
  const vf sums = vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3]));
  vf_store(part + MK_SUMS, vf_fma(vf_load(part + MK_SUMS), factor, sums));
  part[MK_GREATEST] = greatest;
  float lanes[LANES];
  vf_store(lanes, factor);
  return lanes[0];
}

/* ---- blocks and pieces ---- */

/* Up to how many queries read packed vectors and halves as they lie, again for each TOGETHER of them. */
enum { READ_AGAIN = 4 * TOGETHER };

/* The vectors at positions [from, to) of one row and head: where they lie, if they consist of whole lanes, lie by
 * each other and few queries read them; else decoded into scratch. */
static struct mk_span vectors(const struct mk_row* r, const struct mk_lane* lane, const struct mk_lane* beside, int64_t from, int64_t to,
                              int queries, float* scratch) {
  const int size = lane->kept->size, stride = mk_whole(size);
  const int64_t border = from > r->edge ? from : to < r->edge ? to : r->edge;
  struct mk_span before = {0}, behind = {0};
  if (from < border) before = mk_span_of(lane, from - r->base);
  if (border < to) behind = mk_span_of(beside, border - r->edge);
  const struct mk_span* there = border == to ? &before : border == from ? &behind : NULL;
  if (there && size == stride && (there->form == MK_KEPT_F32 || queries <= READ_AGAIN)) return *there;
  if (from < border) COLUMN(kept).load(&before, size, (int)(border - from), scratch, stride);
  if (border < to) COLUMN(kept).load(&behind, size, (int)(to - border), scratch + (border - from) * stride, stride);
  return (struct mk_span){MK_KEPT_F32, stride, {(const char*)scratch}, {stride * 4}};
}

/* From how many queries on turning the keys over costs less than adding lanes up for each of them. */
enum { TURNS_OVER = 8 };

static void block(const struct mk_attention* a, const struct mk_tile* t, const struct mk_lane lanes[4], int64_t start, int low, int high,
                  float* part) {
  const struct mk_row* r = &a->row[t->row];
  const int size = mk_whole(a->size), value_size = mk_whole(a->value_size), stride = mk_part_stride(a);
  const struct mk_span k = vectors(r, &lanes[0], &lanes[1], start + low, start + high, t->count, t->keys);
  if (t->count >= TURNS_OVER) {
    turn_over(&k, low, high, size, t->turned_keys);
    scores_by_keys(t->queries, t->count, t->turned_keys, low, high, size, t->scores);
  } else
    scores_by_lanes(t->queries, t->count, &k, low, high, size, t->scores);
  for (int i = 0; i < t->count; i++) {
    const int64_t from = t->from[i] - start, to = t->to[i] - start;
    const int first = from > low ? (int)(from < high ? from : high) : low, last = to < high ? (int)(to > first ? to : first) : high;
    t->sights[i] = (struct mk_sight){first, last};
    t->factors[i] = weigh(a, t, i, start - r->base, first, last, part + (ptrdiff_t)i * stride);
  }
  const struct mk_span v = a->values_in_keys ? k : vectors(r, &lanes[2], &lanes[3], start + low, start + high, t->count, t->values);
  mix(t->scores, t->factors, t->sights, t->count, &v, low, value_size, part + MK_VALUES, stride);
}

static void piece(const struct mk_attention* a, const struct mk_tile* t, int64_t from, int64_t to, float* part) {
  const int stride = mk_part_stride(a);
  const struct mk_lane lanes[4] = {mk_lane_of(&a->keys, t->row, t->group), mk_lane_of(&a->keys_beside, t->row, t->group),
                                   mk_lane_of(&a->values, t->row, t->group), mk_lane_of(&a->values_beside, t->row, t->group)};
  memset(part, 0, (size_t)t->count * stride * 4);
  for (int i = 0; i < t->count; i++) part[(ptrdiff_t)i * stride + MK_GREATEST] = NOTHING;
  for (int64_t start = from - from % MK_BLOCK; start < to; start += MK_BLOCK) {
    const int low = from > start ? (int)(from - start) : 0, high = to - start < MK_BLOCK ? (int)(to - start) : MK_BLOCK;
    block(a, t, lanes, start, low, high, part);
  }
}

static void merge(const struct mk_attention* a, int count, float* sum, const float* part) {
  const int stride = mk_part_stride(a);
  for (int i = 0; i < count; i++, sum += stride, part += stride) {
    if (part[MK_GREATEST] == NOTHING && vf_sum(vf_load(part + MK_SUMS)) == 0) continue; /* scores that are no numbers have no greatest */
    const float most = sum[MK_GREATEST] > part[MK_GREATEST] ? sum[MK_GREATEST] : part[MK_GREATEST];
    const vf of_sum = vf_exp(vf_set(sum[MK_GREATEST] - most)), of_part = vf_exp(vf_set(part[MK_GREATEST] - most));
    for (int j = MK_SUMS; j < stride; j += LANES)
      vf_store(sum + j, vf_fma(vf_load(sum + j), of_sum, vf_mul(vf_load(part + j), of_part)));
    sum[MK_GREATEST] = most;
  }
}

static void finish(const struct mk_attention* a, const struct mk_tile* t, float* sum) {
  const int shared = a->heads / a->groups, stride = mk_part_stride(a);
  for (int i = 0; i < t->count; i++, sum += stride) {
    const int token = (t->first + i) / shared, head = t->group * shared + (t->first + i) % shared;
    float* out = a->out + (((ptrdiff_t)t->row * a->width + token) * a->heads + head) * a->value_size;
    float total = vf_sum(vf_load(sum + MK_SUMS)), factor = 1;
    if (a->sinks) {
      const float sink = a->sinks[head], most = sum[MK_GREATEST] > sink ? sum[MK_GREATEST] : sink;
      float lanes[LANES];
      vf_store(lanes, vf_exp(vf_set(sum[MK_GREATEST] - most)));
      factor = lanes[0];
      vf_store(lanes, vf_exp(vf_set(sink - most)));
      total = __builtin_fmaf(total, factor, lanes[0]);
    }
    const vf share = vf_set(total == 0 ? 0 : factor / total); /* nothing seen: nothing answered */
    for (int j = 0; j < a->value_size; j += LANES) { /* + 0, so that no zero keeps a sign */
      const vf y = vf_add(vf_mul(vf_load(sum + MK_VALUES + j), share), vf_set(0));
      vf_store_some(out + j, y, a->value_size - j < LANES ? a->value_size - j : LANES);
    }
  }
}

const struct attend COLUMN(attend) = {write, load_queries, piece, merge, finish};
