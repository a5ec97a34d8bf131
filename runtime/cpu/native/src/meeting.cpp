// Meeting other processes (mlx.distributed) while the interpreter goes on. MLX's own function of this name holds it for as
// long as somebody is missing, so that no signal is heard and no other thread can say that enough was waited. The group that
// is met here is the one that MLX's function gives from then on.
#include "mlx/distributed/distributed.h"
#include "node.h"

namespace modelkit {
namespace {
void meet(const std::string& backend) {
  const nb::gil_scoped_release others_run;
  mx::distributed::init(true, backend);
}

void define(nb::module_& m) { m.def("meet", &meet, nb::arg("backend")); }
const Topic topic(define);
}  // namespace
}  // namespace modelkit
