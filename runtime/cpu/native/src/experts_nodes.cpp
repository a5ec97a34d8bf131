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

void define(nb::module_& m) { m.def("gather", &gather, nb::arg("x"), nb::arg("chosen"), nb::arg("stack")); }

const Topic topic(define);
}  // namespace
}  // namespace modelkit
