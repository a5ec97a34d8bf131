// Logits less what the ids before them take off.
#include "sampling/penalties_nodes.h"

#include <algorithm>

namespace modelkit {
namespace {
// in: logits, ids of the step.
class Penalise : public Node {
 public:
  Penalise(mx::Stream stream, std::shared_ptr<const Penalties> by) : Node(stream), by_(std::move(by)) {}
  const char* name() const override { return "ModelkitPenalise"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array logits = dense(in[0], stream()), ids = dense(in[1], stream());
    take_over(in[0], out[0]);
    dispatch(stream(), [by = by_, from = logits.data<float>(), ids = ids.data<int32_t>(), y = out[0].data<float>(), count = logits.size(),
                        columns = logits.shape(1), size = logits.shape(2)] {
      if (from != y) std::copy_n(from, count, y);
      by->apply(ids, y, columns, size);
    });
  }

 private:
  std::shared_ptr<const Penalties> by_;
};

// logits [rows, columns, ids], inputs int32 [rows, columns]
Array penalise(const Array& logits, const Array& inputs, const Held<Penalties>& held) {
  want_float(logits, "logits");
  want(logits.ndim() == 3 && (size_t)logits.shape(0) == held.by->rows(), "logits are [rows, columns, ids], and there is a past for each row");
  want(inputs.dtype() == mx::int32 && inputs.shape() == mx::Shape{logits.shape(0), logits.shape(1)}, "inputs are int32 [rows, columns]");
  return Array(logits.shape(), mx::float32, std::make_shared<Penalise>(processor(), held.by), Arrays{logits, inputs});
}

void define(nb::module_& m) {
  using Floats = std::vector<float>;
  nb::class_<Held<Penalties>>(m, "Penalties")
      .def("__init__", &hold<Penalties, std::vector<std::vector<int32_t>>, std::vector<int64_t>, Floats, Floats, Floats>, nb::arg("pasts"),
           nb::arg("windows"), nb::arg("repeat"), nb::arg("presence"), nb::arg("frequency"));
  m.def("penalise", &penalise, nb::arg("logits"), nb::arg("inputs"), nb::arg("by"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
