#include "graph/node.h"
#include "rows/softmax.h"

namespace modelkit {
namespace {
Array softmax(const Array& x) {
  return row_wise("ModelkitSoftmax", {x}, [](const Rows* in, float* y, int rows, int width) {
    mk_softmax(in[0].data, in[0].stride, y, rows, width);
  });
}

class LogSumExp : public Node {
 public:
  explicit LogSumExp(mx::Stream stream) : Node(stream) {}
  const char* name() const override { return "ModelkitLogSumExp"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Rows x = rows_in_place(in[0], stream());
    allocate(out[0]);
    dispatch(stream(), [x, y = out[0].data<float>(), rows = rows_of(in[0]), width = in[0].shape(-1)] {
      if (rows) mk_log_sum_exp(x.data, x.stride, y, rows, width);
    });
  }
};

// [..., D] -> [..., 1]
Array log_sum_exp(const Array& x) {
  want_float(x, "x");
  if (!x.ndim() || !x.shape(-1)) throw std::invalid_argument("x must have numbers along its last axis");
  mx::Shape shape = x.shape();
  shape.back() = 1;
  return Array(shape, mx::float32, std::make_shared<LogSumExp>(processor()), Arrays{x});
}

class Likeliest : public Node {
 public:
  explicit Likeliest(mx::Stream stream) : Node(stream) {}
  const char* name() const override { return "ModelkitLikeliest"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Rows x = rows_in_place(in[0], stream());
    allocate(out[0]);
    dispatch(stream(), [x, y = out[0].data<int32_t>(), rows = rows_of(in[0]), width = in[0].shape(-1)] {
      if (rows) mk_likeliest(x.data, x.stride, y, rows, width);
    });
  }
};

// [..., D] -> int32 [...]
Array likeliest(const Array& x) {
  want_float(x, "x");
  if (!x.ndim() || !x.shape(-1)) throw std::invalid_argument("x must have numbers along its last axis");
  mx::Shape shape = x.shape();
  shape.pop_back();
  return Array(shape, mx::int32, std::make_shared<Likeliest>(processor()), Arrays{x});
}

void define(nb::module_& m) {
  m.def("softmax", &softmax, nb::arg("x"));
  m.def("likeliest", &likeliest, nb::arg("x"));
  m.def("log_sum_exp", &log_sum_exp, nb::arg("x"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
