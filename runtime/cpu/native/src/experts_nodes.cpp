#include <algorithm>

#include "experts.h"
#include "indices.h"
#include "products_nodes.h"

namespace modelkit {
namespace {
// For each place of the shape `all`, that of the array of shape `own` which is seen there.
std::vector<int64_t> seen(const mx::Shape& all, const mx::Shape& own) {
  std::vector<int64_t> places{0};
  const size_t more = all.size() - own.size();
  for (size_t axis = 0; axis < all.size(); axis++) {
    const int size = axis < more ? 1 : own[axis - more];
    std::vector<int64_t> next;
    next.reserve(places.size() * all[axis]);
    for (const int64_t place : places)
      for (int i = 0; i < all[axis]; i++) next.push_back(place * size + (size == 1 ? 0 : i));
    places = std::move(next);
  }
  return places;
}

mx::Shape without_last(mx::Shape shape, int count) {
  shape.resize(shape.size() - count);
  return shape;
}

// x [..., n, k], chosen [...], a stack -> [..., n, outputs]
class Gather : public Node {
 public:
  Gather(mx::Stream stream, Matrix stack) : Node(stream), stack_(std::move(stack)) {}
  const char* name() const override { return "ModelkitGather"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array x = dense(in[0], stream()), chosen = dense(in[1], stream());
    size_t at = 2;
    const mk_matrix stack = stack_.take(in, at, stream());
    allocate(out[0]);
    const mx::Shape all = without_last(out[0].shape(), 2);
    dispatch(stream(), [stack, count = stack_.count(), x_at = seen(all, without_last(x.shape(), 2)), chosen_at = seen(all, chosen.shape()),
                        chosen = Array::unsafe_weak_copy(chosen), together = x.shape(-2), x = x.data<float>(), y = out[0].data<float>()] {
      const std::vector<int64_t> matrices = indices(chosen);
      std::vector<mk_asked> rows;
      rows.reserve(x_at.size() * together);
      for (size_t i = 0; i < x_at.size(); i++) {
        const int64_t m = matrices[chosen_at[i]], counted = m < 0 ? m + count : m; // as MLX counts from the end
        const int matrix = (int)std::clamp<int64_t>(counted, 0, count - 1);
        for (int64_t r = 0; r < together; r++)
          rows.push_back({matrix, x + (x_at[i] * together + r) * stack.k, y + ((int64_t)i * together + r) * stack.n});
      }
      std::stable_sort(rows.begin(), rows.end(), [](const mk_asked& a, const mk_asked& b) { return a.matrix < b.matrix; });
      mk_ask(&stack, rows.data(), (int)rows.size());
    });
  }

 private:
  Matrix stack_;
};

Array gather(const Array& x, const Array& chosen, const Matrix& stack) {
  want_float(x, "x");
  want_indices(chosen, "numbers of matrices");
  check(x.ndim() >= 2 && x.shape(-1) == stack.width(), "x must be [..., rows, elements of a row of the matrices]");
  check(stack.count() > 0 && stack.outputs() > 0, "a stack has matrices, and they have rows");
  mx::Shape shape = mx::broadcast_shapes(without_last(x.shape(), 2), chosen.shape());
  shape.push_back(x.shape(-2));
  shape.push_back(stack.outputs());
  Arrays in{x, chosen};
  stack.add_inputs(in);
  return Array(std::move(shape), mx::float32, std::make_shared<Gather>(processor(), stack), std::move(in));
}

// x [..., rows, k] times w [..., k, n], or [..., n, k] where it is transposed: arrays, leading dimensions as in matmul.
class Matmul : public Node {
 public:
  Matmul(mx::Stream stream, bool transposed) : Node(stream), transposed_(transposed) {}
  const char* name() const override { return "ModelkitMatmul"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array x = dense(in[0], stream()), w = dense(in[1], stream());
    allocate(out[0]);
    mk_matrix first{};
    first.codes = w.data<void>(), first.kind = MK_FLOATS, first.type = type_of(w, "the matrix");
    first.n = out[0].shape(-1), first.k = x.shape(-1), first.across = !transposed_;
    first.bits = 8 * (int)w.itemsize(), first.stride = (int64_t)w.shape(-1) * (int64_t)w.itemsize();
    const mx::Shape all = without_last(out[0].shape(), 2);
    dispatch(stream(), [first, x_at = seen(all, without_last(x.shape(), 2)), w_at = seen(all, without_last(w.shape(), 2)),
                        together = x.shape(-2), x = x.data<float>(), y = out[0].data<float>()] {
      std::vector<mk_asked> rows;
      for (size_t i = 0; i < x_at.size(); i++)
        for (int64_t r = 0; r < together; r++)
          rows.push_back({(int)w_at[i], x + (x_at[i] * together + r) * first.k, y + ((int64_t)i * together + r) * first.n});
      std::stable_sort(rows.begin(), rows.end(), [](const mk_asked& a, const mk_asked& b) { return a.matrix < b.matrix; });
      mk_ask(&first, rows.data(), (int)rows.size());
    });
  }

 private:
  bool transposed_;
};

Array matmul(const Array& x, const Array& w, bool transposed) {
  want_float(x, "x");
  type_of(w, "the matrix");
  check(x.ndim() >= 2 && w.ndim() >= 2, "both sides have two dimensions at least");
  check(x.shape(-1) == w.shape(transposed ? -1 : -2), "x's last dimension must be that of the matrix which is summed over");
  check(x.shape(-1) > 0 && w.size() > 0, "a matrix has elements");
  mx::Shape shape = mx::broadcast_shapes(without_last(x.shape(), 2), without_last(w.shape(), 2));
  shape.push_back(x.shape(-2));
  shape.push_back(w.shape(transposed ? -2 : -1));
  return Array(std::move(shape), mx::float32, std::make_shared<Matmul>(processor(), transposed), Arrays{x, w});
}

void define(nb::module_& m) {
  m.def("gather", &gather, nb::arg("x"), nb::arg("chosen"), nb::arg("stack"));
  m.def("matmul", &matmul, nb::arg("x"), nb::arg("w"), nb::arg("transposed") = false);
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
