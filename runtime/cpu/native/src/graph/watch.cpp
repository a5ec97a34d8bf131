// Has anybody put other arrays into modules since something was made of them? Asked at every step.
#include "graph/node.h"

namespace modelkit {
namespace {
// The arrays of modules of mlx.nn, which are dicts, and of their children. None stands for no module.
class Watch {
 public:
  explicit Watch(nb::handle modules) { note(modules); }

  bool same(nb::handle modules) const {
    size_t at = 0;
    return finds(modules, at) && at == seen_.size();
  }

 private:
  // An array, or how many children of which type there are. Modules are not held, since they may hold this.
  struct Seen {
    nb::object array;
    uintptr_t id;  // of an array: what is written into it makes another of it
    PyTypeObject* type;
    Py_ssize_t children;
    const void* where;  // it was, to be brought near: between two steps all of it has left the nearest caches
  };

  static constexpr size_t AHEAD = 12;

  static bool holds(PyObject* object) { return PyDict_Check(object) || PyTuple_Check(object) || PyList_Check(object); }
  static Py_ssize_t size(PyObject* holder) { return PyDict_Check(holder) ? PyDict_GET_SIZE(holder) : PySequence_Fast_GET_SIZE(holder); }

  template <class Visit>
  static bool each(PyObject* holder, Visit visit) {
    if (PyDict_Check(holder)) {
      PyObject *key, *value;
      for (Py_ssize_t at = 0; PyDict_Next(holder, &at, &key, &value);)
        if (!visit(value)) return false;
      return true;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(holder); i++)
      if (!visit(PySequence_Fast_GET_ITEM(holder, i))) return false;
    return true;
  }

  bool note(nb::handle object) {
    PyObject* it = object.ptr();
    if (holds(it)) {
      seen_.push_back({{}, 0, Py_TYPE(it), size(it), it});
      return each(it, [&](PyObject* child) { return note(child); });
    }
    const bool array = nb::isinstance<Array>(object);
    seen_.push_back({array ? nb::borrow(object) : nb::object(), array ? nb::inst_ptr<Array>(object)->id() : 0, Py_TYPE(it), 0, it});
    return true;
  }

  bool finds(nb::handle object, size_t& at) const {
    PyObject* it = object.ptr();
    if (at + AHEAD < seen_.size()) __builtin_prefetch(seen_[at + AHEAD].where);
    if (at == seen_.size() || Py_TYPE(it) != seen_[at].type) return false;
    const Seen& seen = seen_[at++];
    if (holds(it)) return size(it) == seen.children && each(it, [&](PyObject* child) { return finds(child, at); });
    return !seen.array.is_valid() || (it == seen.array.ptr() && nb::inst_ptr<Array>(object)->id() == seen.id);
  }

  std::vector<Seen> seen_;
};

void define(nb::module_& m) {
  nb::class_<Watch>(m, "Watch").def(nb::init<nb::handle>(), nb::arg("modules")).def("same", &Watch::same, nb::arg("modules"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
