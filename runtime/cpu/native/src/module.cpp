// The extension module: one function per node, and the switches of columns and threads.
#include "simd/columns.h"
#include "threads/apart.h"
#include "mlx/version.h"
#include "graph/node.h"
#include "threads/pool.h"

NB_MODULE(_kernels, m) {
  namespace nb = nanobind;
  nb::module_::import_("mlx.core");  // brings libmlx and the type of arrays
  m.attr("BUILT_FOR") = std::to_string(MLX_VERSION_MAJOR) + "." + std::to_string(MLX_VERSION_MINOR) + "." + std::to_string(MLX_VERSION_PATCH);
  m.def("column", [] { return std::string(mk_column_name(mk_column())); });
  m.def("columns", [] {
    std::vector<std::string> names;
    for (int i = 0; i < MK_COLUMNS; i++)
      if (mk_column_runs(i)) names.push_back(mk_column_name(i));
    return names;
  });
  m.def("use_column", [](const std::string& name) { return mk_use_column(name.c_str()) == 0; });
  m.def("threads", &mk_threads);
  m.def("set_threads", &mk_set_threads);
  m.def("computes_on", &mk_computes_on);
  m.def("keep_off", &mk_keep_off);
  m.def("let_back", &mk_let_back);
  // The thread that computes for the calling one, the pool's, and that one itself: last, since the first may begin only now, and
  // may run then where whoever begins it may.
  m.def("stay_on", [](const std::vector<int>& processors) {
    modelkit::dispatch(modelkit::processor(), [processors] {
      mk_stay_on(processors.data(), (int)processors.size());
      mk_helpers_along();
    });
    mk_stay_on(processors.data(), (int)processors.size());
  }, nb::arg("processors"));
  for (auto define : modelkit::topics()) define(m);
}
