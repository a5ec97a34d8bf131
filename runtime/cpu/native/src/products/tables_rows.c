#include "products/forms.h"
#include "products/tables.h"

enum { ROWS = 16 }; /* per chunk: fewer are not worth waking a thread */

struct job {
  struct kernels by;
  const struct mk_matrix* table;
  const int64_t* ids;
  float* y;
  int count;
};

static void chunk(void* with, int c) {
  const struct job* j = with;
  const int64_t n = j->table->n;
  for (int i = c * ROWS; i < (c + 1) * ROWS && i < j->count; i++) {
    int64_t id = j->ids[i] < 0 ? j->ids[i] + n : j->ids[i];
    id = id < 0 ? 0 : id >= n ? n - 1 : id;
    j->by.floats->row(j->table, id, j->y + (size_t)i * (size_t)j->table->k);
  }
}

void mk_table_rows(const struct mk_matrix* table, const int64_t* ids, int count, float* y) {
  struct job j = {mk_kernels(), table, ids, y, count};
  mk_run(chunk, &j, (count + ROWS - 1) / ROWS);
}
