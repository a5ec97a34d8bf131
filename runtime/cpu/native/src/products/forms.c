#include "products/forms.h"

static const struct products* const products[] = ALL_INTEGER_COLUMNS(products);
static const struct floats* const floats[] = ALL_COLUMNS(floats);
static int always_floats;

struct kernels mk_kernels(void) { return (struct kernels){products[mk_column()], floats[mk_column()]}; }

int mk_in_floats(const struct mk_matrix* w) { return w->kind >= MK_MXFP8 || w->across || always_floats; }

void mk_use_float_rows(int always) { always_floats = always; }

int mk_float_rows(void) { return always_floats; }
