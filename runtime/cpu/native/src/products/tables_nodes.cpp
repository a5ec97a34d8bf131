#include "graph/indices.h"
#include "products/products_nodes.h"
#include "products/tables.h"

namespace modelkit {
namespace {
class TableRows : public Node {
 public:
  TableRows(mx::Stream stream, Matrix table) : Node(stream), table_(std::move(table)) {}
  const char* name() const override { return "ModelkitTableRows"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array ids = dense(in[0], stream());
    size_t at = 1;
    const mk_matrix table = table_.take(in, at, stream());
    allocate(out[0]);
    dispatch(stream(), [table, ids = Array::unsafe_weak_copy(ids), y = out[0].data<float>()] {
      const std::vector<int64_t> numbers = indices(ids);
      mk_table_rows(&table, numbers.data(), (int)numbers.size(), y);
    });
  }

 private:
  Matrix table_;
};

Array table_rows(const Array& ids, const Matrix& table) {
  want_indices(ids, "ids");
  check(table.count() == 1 && table.outputs() > 0, "a table is one matrix, and has rows");
  Arrays in{ids};
  table.add_inputs(in);
  mx::Shape shape = ids.shape();
  shape.push_back(table.width());
  return Array(std::move(shape), mx::float32, std::make_shared<TableRows>(processor(), table), std::move(in));
}

void define(nb::module_& m) { m.def("table_rows", &table_rows, nb::arg("ids"), nb::arg("table")); }

const Topic topic(define);
}  // namespace
}  // namespace modelkit
