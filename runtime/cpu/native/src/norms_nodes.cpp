#include "node.h"
#include "norms.h"

namespace modelkit {
namespace {
class RmsNorm : public Node {
 public:
  RmsNorm(mx::Stream stream, float eps) : Node(stream), eps_(eps) {}
  const char* name() const override { return "ModelkitRmsNorm"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array x = dense(in[0], stream());
    const float* weight = in.size() > 1 ? dense(in[1], stream()).data<float>() : nullptr;
    take_over(in[0], out[0]);
    dispatch(stream(), [x = x.data<float>(), weight, y = out[0].data<float>(), rows = rows_of(x), width = x.shape(-1),
                        eps = eps_] { mk_rms_norm(x, weight, y, rows, width, eps); });
  }

 private:
  float eps_;
};

Array rms_norm(const Array& x, const std::optional<Array>& weight, float eps) {
  want_float(x, "x");
  Arrays in{x};
  if (weight) {
    want_float(*weight, "the weight");
    if (weight->ndim() != 1 || weight->shape(0) != x.shape(-1)) throw std::invalid_argument("the weight must have x's last dimension");
    in.push_back(*weight);
  }
  return Array(x.shape(), mx::float32, std::make_shared<RmsNorm>(processor(), eps), std::move(in));
}

void define(nb::module_& m) { m.def("rms_norm", &rms_norm, nb::arg("x"), nb::arg("weight").none(), nb::arg("eps")); }

const Topic topic(define);
}  // namespace
}  // namespace modelkit
