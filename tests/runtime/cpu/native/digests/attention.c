#include "attention/attend.h"
#include "digests.h"

enum { ROWS = 2, GROUPS = 2, HEADS = 6, BEHIND = 9, EVERYWHERE = 1 << 20 }; /* BEHIND: tokens kept behind a prompt, and apart */

/* Slots of any bytes, and none behind the last one that is written: what nobody has written, nobody reads. */
static struct mk_kept kept(enum mk_form form, int size, int slots) {
  static const int bits[] = {[MK_KEPT_F32] = 32, [MK_KEPT_BF16] = 16, [MK_KEPT_F16] = 16, [MK_KEPT_Q8] = 8, [MK_KEPT_Q4] = 4};
  struct mk_kept k = {.form = form, .size = size, .group = 32};
  for (int i = 0; i < (form < MK_KEPT_Q8 ? 1 : 3); i++) {
    k.slot[i] = i ? size / k.group * 4 : size * bits[form] / 8;
    k.head[i] = slots * k.slot[i], k.row[i] = GROUPS * k.head[i];
    k.part[i] = (char*)bytes((size_t)(ROWS * k.row[i]));
  }
  return k;
}

static struct mk_strided strided(int heads, int width, int size) {
  return (struct mk_strided){floats((size_t)ROWS * heads * width * size, -2, 2), (ptrdiff_t)heads * width * size, (ptrdiff_t)width * size, size};
}

/* One step of `width` tokens, of which the first row lacks one; its keys and values are written apart if that is asked for. */
static void digest_step(struct mk_attention a, struct mk_row* rows, int width, int apart, const char* name) {
  for (int r = 0; r < ROWS; r++) {
    rows[r].count = !r && width > 1 ? width - 1 : width, rows[r].stop = rows[r].start + rows[r].count;
    rows[r].edge = apart ? rows[r].start : rows[r].stop;
  }
  a.row = rows, a.width = width, a.writes_beside = apart;
  a.queries = strided(HEADS, width, a.size), a.new_keys = strided(GROUPS, width, a.size);
  if (!a.values_in_keys) a.new_values = strided(GROUPS, width, a.value_size);
  if (a.pairs) a.turns = floats((size_t)ROWS * width * 2 * a.pairs, -1, 1), a.turns_row = (ptrdiff_t)width * 2 * a.pairs;
  if (a.mask_key) {
    const size_t slots = (size_t)(rows[ROWS - 1].stop - rows[ROWS - 1].base), count = ROWS * width * slots;
    uint8_t* seen = bytes(count);
    for (size_t i = 0; i < count; i++) seen[i] &= 1;
    a.mask = a.mask_is_bool ? (const void*)seen : floats(count, -3, 3), a.mask_token = (ptrdiff_t)slots, a.mask_row = width * a.mask_token;
  }
  const size_t count = (size_t)ROWS * width * HEADS * a.value_size;
  a.out = room(count);
  mk_attend(&a);
  static const char* const forms[] = {"f32", "bf16", "f16", "q8", "q4"};
  say_floats(a.out, count, "attention %s %s size=%d width=%d apart=%d", name, forms[a.keys.form], a.size, width, apart);
  for (int r = 0; r < ROWS; r++) rows[r].start = rows[r].stop;
}

/* A prompt, a token after it, and a few: each step reads what those before it have written. */
static void digest(struct mk_attention a, enum mk_form form, int size, int value_size, int prompt, const char* name) {
  struct mk_row rows[ROWS] = {{.base = 0}, {.start = 64, .base = 64}};
  a.rows = ROWS, a.heads = HEADS, a.groups = GROUPS, a.size = size, a.value_size = value_size, a.scale = 0.3f;
  if (!a.before) a.before = EVERYWHERE;
  a.keys = kept(form, size, prompt + BEHIND), a.keys_beside = kept(form, size, BEHIND);
  a.values = a.values_in_keys ? a.keys : kept(form, value_size, prompt + BEHIND);
  a.values_beside = a.values_in_keys ? a.keys_beside : kept(form, value_size, BEHIND);
  const int widths[] = {prompt, 1, 2, 5, 1, BEHIND};
  for (int i = 0; i < 6; i++) digest_step(a, rows, widths[i], i == 5, name);
}

void digest_attention(void) {
  for (enum mk_form form = 0; form < MK_KEPT_FORMS; form++) {
    digest((struct mk_attention){0}, form, 64, 64, 90, "all");
    digest((struct mk_attention){.before = 40, .softcap = 20, .pairs = 16}, form, 128, 32, 90, "window, capped, turned");
    digest((struct mk_attention){.chunk = 50, .mask_key = 1, .mask_is_bool = 1}, form, 96, 64, 90, "chunk, masked");
    digest((struct mk_attention){.ahead = 7, .mask_key = 1, .sinks = floats(HEADS, -1, 1)}, form, 64, 96, 90, "ahead, added, sinks");
    digest((struct mk_attention){.values_in_keys = 1}, form, 96, 64, 90, "values in keys");
  }
  for (enum mk_form form = 0; form < MK_KEPT_Q8; form++) digest((struct mk_attention){.pairs = 10, .traditional = 1}, form, 20, 23, 50, "odd sizes");
  digest((struct mk_attention){0}, MK_KEPT_F32, 16, 16, MK_PIECE + 28, "pieces");
}
