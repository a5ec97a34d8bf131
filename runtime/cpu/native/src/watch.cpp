// Has anybody put other arrays into modules since something was made of them? Asked at every step.
#include "node.h"

namespace modelkit {
namespace {
// The weights of modules of mlx.nn, which are dicts. None stands for no module.
class Watch {
 public:
  explicit Watch(nb::tuple modules) {
    for (nb::handle module : modules)
      for (PyObject* name : names()) {
        PyObject* found = item(module.ptr(), name);
        seen_.push_back({nb::borrow(found), id(found)});
      }
  }

  bool same(nb::tuple modules) const {
    size_t i = 0;
    if (modules.size() * names().size() != seen_.size()) return false;
    for (nb::handle module : modules)
      for (PyObject* name : names()) {
        PyObject* found = item(module.ptr(), name);
        if (found != seen_[i].array.ptr() || id(found) != seen_[i].id) return false;
        i++;
      }
    return true;
  }

 private:
  struct Seen {
    nb::object array;  // null where there is none
    uintptr_t id;      // what is written into an array makes another of it
  };

  static const std::array<PyObject*, 4>& names() {
    static const std::array<PyObject*, 4> all = {PyUnicode_InternFromString("weight"), PyUnicode_InternFromString("bias"),
                                                 PyUnicode_InternFromString("scales"), PyUnicode_InternFromString("biases")};
    return all;
  }
  static PyObject* item(PyObject* module, PyObject* name) { return PyDict_Check(module) ? PyDict_GetItemWithError(module, name) : nullptr; }
  static uintptr_t id(PyObject* found) {
    Array* array = nullptr;
    return found && nb::try_cast<Array*>(nb::handle(found), array) && array ? array->id() : 0;
  }

  std::vector<Seen> seen_;
};

void define(nb::module_& m) {
  nb::class_<Watch>(m, "Watch").def(nb::init<nb::tuple>(), nb::arg("modules")).def("same", &Watch::same, nb::arg("modules"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
