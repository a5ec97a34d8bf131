#include "graph/node.h"
#include "rows/norms.h"

namespace modelkit {
namespace {
using Maybe = std::optional<Array>;

// One number for each of x's last dimension.
void want_vector(const Array& weight, const Array& x, const char* what) {
  if (weight.ndim() != 1 || !x.ndim() || weight.shape(0) != x.shape(-1))
    throw std::invalid_argument(std::string(what) + " must have x's last dimension");
}

// Puts `array` behind the inputs; returns where, or -1 where there is none.
int put(Arrays& in, const Maybe& array) {
  if (!array) return -1;
  in.push_back(*array);
  return (int)in.size() - 1;
}

const float* at(const Rows* in, int place) { return place < 0 ? nullptr : in[place].data; }

Array rms_norm(const Array& x, const Maybe& weight, float eps, const Maybe& add) {
  Arrays in{x};
  if (weight) want_vector(*weight, x, "the weight");
  if (add) want_same_shape(x, *add);
  const int w = put(in, weight), a = put(in, add);
  return row_wise("ModelkitRmsNorm", std::move(in), [w, a, eps](const Rows* in, float* y, int rows, int width) {
    mk_rms_norm(in[0].data, in[0].stride, at(in, w), at(in, a), a < 0 ? 0 : in[a].stride, y, rows, width, eps);
  });
}

Array layer_norm(const Array& x, const Maybe& weight, const Maybe& bias, float eps) {
  Arrays in{x};
  if (weight) want_vector(*weight, x, "the weight");
  if (bias) want_vector(*bias, x, "the bias");
  const int w = put(in, weight), b = put(in, bias);
  return row_wise("ModelkitLayerNorm", std::move(in), [w, b, eps](const Rows* in, float* y, int rows, int width) {
    mk_layer_norm(in[0].data, in[0].stride, at(in, w), at(in, b), y, rows, width, eps);
  });
}

Array cut(const Array& x, float times) {
  return row_wise("ModelkitCut", {x}, [times](const Rows* in, float* y, int rows, int width) {
    mk_cut_rows(in[0].data, in[0].stride, y, width, rows, width, times);
  });
}

void define(nb::module_& m) {
  m.def("cut", &cut, nb::arg("x"), nb::arg("times"));
  m.def("rms_norm", &rms_norm, nb::arg("x"), nb::arg("weight").none(), nb::arg("eps"), nb::arg("add").none() = nb::none());
  m.def("layer_norm", &layer_norm, nb::arg("x"), nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("eps"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
