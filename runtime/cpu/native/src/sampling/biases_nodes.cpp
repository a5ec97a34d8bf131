// The class, as Python sees it: a part of the node from ids to tokens (guess_nodes.cpp).
#include "sampling/biases_nodes.h"

namespace modelkit {
namespace {
void define(nb::module_& m) {
  nb::class_<Held<Biases>>(m, "Biases")
      .def("__init__", &hold<Biases, std::vector<std::vector<int32_t>>, std::vector<std::vector<float>>>, nb::arg("ids"), nb::arg("values"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
