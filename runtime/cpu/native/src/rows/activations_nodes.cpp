#include "graph/node.h"
#include "rows/activations.h"

namespace modelkit {
namespace {
mk_act known(int act) {
  if (act < 0 || act >= MK_ACTS) throw std::invalid_argument("no such activation");
  return (mk_act)act;
}

Array act(int which, const Array& x) {
  return row_wise("ModelkitAct", {x}, [act = known(which)](const Rows* in, float* y, int rows, int width) {
    mk_act_rows(act, in[0].data, in[0].stride, y, rows, width);
  });
}

Array gate_by(struct mk_gate kind, const Array& gate, const Array& up) {
  want_same_shape(gate, up);
  return row_wise("ModelkitGate", {gate, up}, [kind](const Rows* in, float* y, int rows, int width) {
    mk_gate_rows(kind, in[0].data, in[0].stride, in[1].data, in[1].stride, y, rows, width);
  });
}

Array gate(int act, const Array& gate, const Array& up) { return gate_by({known(act), 0, 0}, gate, up); }

Array clipped_gate(float limit, float slope, const Array& gate, const Array& up) {
  if (!(limit > 0)) throw std::invalid_argument("the limit must be above 0");
  return gate_by({MK_SIGMOID, limit, slope}, gate, up);
}

Array softcap(const Array& x, float cap) {
  if (!(cap > 0)) throw std::invalid_argument("the cap must be above 0");
  return row_wise("ModelkitSoftcap", {x}, [cap](const Rows* in, float* y, int rows, int width) {
    mk_softcap_rows(cap, in[0].data, in[0].stride, y, rows, width);
  });
}

// by: rise, fall, beta, eps.
Array bend(const std::tuple<float, float, float, float>& by, const Array& x) {
  const auto [rise, fall, beta, eps] = by;
  if (!(eps <= 0)) throw std::invalid_argument("eps must be at most 0");
  return row_wise("ModelkitBend", {x}, [kind = mk_bend{rise, fall, beta, eps}](const Rows* in, float* y, int rows, int width) {
    mk_bend_rows(kind, in[0].data, in[0].stride, y, rows, width);
  });
}

void define(nb::module_& m) {
  m.def("act", &act, nb::arg("act"), nb::arg("x"));
  m.def("gate", &gate, nb::arg("act"), nb::arg("gate"), nb::arg("up"));
  m.def("clipped_gate", &clipped_gate, nb::arg("limit"), nb::arg("slope"), nb::arg("gate"), nb::arg("up"));
  m.def("bend", &bend, nb::arg("by"), nb::arg("x"));
  m.def("softcap", &softcap, nb::arg("x"), nb::arg("cap"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
