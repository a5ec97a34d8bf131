// What all nodes of MLX's graph share: a primitive that runs on the processor and on nothing else.
#pragma once
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mlx/array.h"
#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/device.h"
#include "mlx/primitives.h"
#include "mlx/utils.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace modelkit {
namespace mx = mlx::core;
namespace nb = nanobind;
using Array = mx::array;
using Arrays = std::vector<Array>;

class Node : public mx::Primitive {
 public:
  explicit Node(mx::Stream stream) : Primitive(stream) {}
  void eval_gpu(const Arrays&, Arrays&) override { throw std::runtime_error("modelkit's kernels run on the processor only"); }
  // Slots and positions are part of a node, so no two are the same and none is ever merged with another.
  bool is_equivalent(const Primitive&) const override { return false; }
};

// Nodes are put on the stream that MLX would use here: that of the thread which builds the graph.
inline mx::Stream processor() { return mx::default_stream(mx::Device::cpu); }

inline void allocate(Array& out) { out.set_data(mx::allocator::malloc(out.nbytes())); }

// How far in front of its data a buffer of MLX's processor allocator points, MOST_IN_FRONT at most; -1 where buffers are
// something else, and memory may not be the C library's.
constexpr ptrdiff_t MOST_IN_FRONT = 8;
ptrdiff_t word_in_front();

// The out array in the input's own memory where nobody else holds it, else in new memory. True: in the input's.
inline bool take_over(const Array& in, Array& out) {
  if (in.is_donatable() && in.flags().row_contiguous && in.itemsize() == out.itemsize()) {
    out.copy_shared_buffer(in);
    return true;
  }
  allocate(out);
  return false;
}

// For nodes of several outputs that write into inputs: each output has a list of the inputs of its own, and the one
// that is being evaluated counts. Before write_into.
inline void hold_inputs_once(const Arrays& in, Arrays& out) {
  for (Array& x : out)
    if (&x.inputs() != &in && !x.is_tracer()) x.inputs().clear();
}

// May a node write into this input's memory, behind what was written before? Its jobs may still be waiting, and hold it until
// they are done, so that it would not count as donatable: that depends on how far the stream has come. What waits runs before
// this node's own job. So only other arrays are asked for, of which an array knows the number alone.
inline bool may_write_into(const Array& in) {
  auto& held = const_cast<std::shared_ptr<Array::Data>&>(in.data_shared_ptr());
  auto own = std::exchange(held, std::make_shared<Array::Data>(mx::allocator::malloc(1)));
  const bool alone = in.is_donatable() && own->is_owned();
  held = std::move(own);
  return alone && in.flags().row_contiguous;
}

// As take_over, for such memory.
inline bool write_into(const Array& in, Array& out) {
  if (may_write_into(in)) {
    out.copy_shared_buffer(in);
    return true;
  }
  allocate(out);
  return false;
}

template <class F>
void dispatch(mx::Stream stream, F&& run) {
  mx::cpu::get_command_encoder(stream).dispatch(std::forward<F>(run));
}

// For eval_cpu: x with its rows one behind the other, as kernels read them; copied where it is seen through
// strides. (mx::contiguous would be one more node of the graph for every input, copied or not.)
Array dense(const Array& x, mx::Stream stream);

// Rows of floats as they lie: each with its numbers side by side, all equally far apart.
struct Rows {
  const float* data;
  ptrdiff_t stride;
};

// x's rows where they lie, if they lie so; else those of a dense copy.
Rows rows_in_place(const Array& x, mx::Stream stream);

inline void want(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

inline void want_float(const Array& x, const char* what) {
  if (x.dtype() != mx::float32) throw std::invalid_argument(std::string(what) + " must be float32");
}

// What every file of nodes adds to the module: `const Topic topic(define);`
using Define = void (*)(nb::module_&);
inline std::vector<Define>& topics() {
  static std::vector<Define> all;
  return all;
}
struct Topic {
  explicit Topic(Define define) { topics().push_back(define); }
};

// What nodes share with Python, as Python holds it. Nodes let go of what they hold on MLX's threads, and a shared_ptr that is
// made of a Python object waits there for the interpreter, which may be waiting for that thread: so they never hold such a one.
template <class T>
struct Held {
  std::shared_ptr<const T> by;
};
template <class T, class Made, class... Args>
Held<T> held(Args... args) {
  return {std::make_shared<const Made>(std::move(args)...)};
}
template <class T, class... Args>
void hold(Held<T>* at, Args... args) {  // for __init__
  new (at) Held<T>(held<T, T>(std::move(args)...));
}

inline int rows_of(const Array& x) { return x.shape(-1) ? (int)(x.size() / x.shape(-1)) : 0; }

// A node whose answer has the shape of its first input and is computed row by row:
// run(in, y, rows, width), with every input as rows where it lies and y dense. A weight [D] is an input of one row.
template <class Run>
class RowWise : public Node {
 public:
  RowWise(mx::Stream stream, const char* name, Run run) : Node(stream), name_(name), run_(std::move(run)) {}
  const char* name() const override { return name_; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    std::vector<Rows> rows;
    for (const Array& x : in) rows.push_back(rows_in_place(x, stream()));
    take_over(in[0], out[0]);
    dispatch(stream(), [rows = std::move(rows), run = run_, y = out[0].data<float>(), count = rows_of(in[0]), width = in[0].shape(-1)] {
      if (count) run(rows.data(), y, count, width);
    });
  }

 private:
  const char* name_;
  Run run_;
};

template <class Run>
Array row_wise(const char* name, Arrays in, Run run) {
  for (const Array& x : in) want_float(x, "every input");
  if (!in[0].ndim()) throw std::invalid_argument("x must have a last axis");
  const mx::Shape shape = in[0].shape();
  return Array(shape, mx::float32, std::make_shared<RowWise<Run>>(processor(), name, std::move(run)), std::move(in));
}

inline void want_same_shape(const Array& x, const Array& other) {
  if (x.shape() != other.shape()) throw std::invalid_argument("both must have the same shape");
}
}  // namespace modelkit
