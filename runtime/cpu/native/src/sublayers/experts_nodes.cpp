#include <algorithm>

#include "graph/indices.h"
#include "sublayers/experts_block.h"

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

// Numbers below zero count from the end, as in MLX; one beyond both ends is the nearest.
int one_of(int64_t number, int count) { return (int)std::clamp<int64_t>(number < 0 ? number + count : number, 0, count - 1); }

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
        const int matrix = one_of(matrices[chosen_at[i]], count);
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

// What all steps have in common.
struct Block {
  Experts experts;
  Weights weights;
};

class Answered : public Node {
 public:
  Answered(mx::Stream stream, std::shared_ptr<const Block> by, int at) : Node(stream), by_(std::move(by)), at_(at) {}
  const char* name() const override { return "ModelkitExperts"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array x = dense(in[0], stream()), chosen = dense(in[1], stream()), weights = dense(in[2], stream());
    Taken from = by_->weights.take(in, at_, stream());
    ExpertsRun run(by_->experts, from);
    allocate(out[0]);
    dispatch(stream(), [by = by_, run = std::move(run), x = x.data<float>(), y = out[0].data<float>(), rows = rows_of(in[0]),
                        chosen = Array::unsafe_weak_copy(chosen), weights = weights.data<float>(), each = chosen.shape(-1)] {
      std::vector<int> numbers;
      for (const int64_t number : indices(chosen)) numbers.push_back(one_of(number, run.count));
      run(numbers.data(), weights, each, x, rows, y);
    });
  }

 private:
  std::shared_ptr<const Block> by_;
  int at_;
};

// As Python has a block: called with x [..., D], the experts of each row and their weights [..., k].
class ExpertBlock {
 public:
  ExpertBlock(const std::vector<Matrix>& open, int act, float limit, float slope, const Matrix& close)
      : by_(std::make_shared<Block>(Block{Experts(open, act, limit, slope, close), {}})) {
    by_->experts.add_to(by_->weights);
  }

  Array answer(const Array& x, const Array& chosen, const Array& weights) const {
    want_float(x, "x");
    want(x.ndim() > 0 && x.shape(-1) == by_->experts.close.outputs(), "x must have rows, as wide as the block");
    want_indices(chosen, "numbers of experts");
    want_float(weights, "weights");
    const int each = chosen.ndim() ? chosen.shape(-1) : 0;
    want_each(each);
    want(chosen.shape() == weights.shape() && without_last(chosen.shape(), 1) == without_last(x.shape(), 1),
         "every row must have its experts and their weights");
    Arrays in{x, chosen, weights};
    const int at = by_->weights.join(in);
    return Array(x.shape(), mx::float32, std::make_shared<Answered>(processor(), by_, at), std::move(in));
  }

 private:
  std::shared_ptr<Block> by_;
};

void define(nb::module_& m) {
  nb::class_<ExpertBlock>(m, "ExpertBlock")
      .def(nb::init<const std::vector<Matrix>&, int, float, float, const Matrix&>(), nb::arg("open"), nb::arg("act"), nb::arg("limit"),
           nb::arg("slope"), nb::arg("close"))
      .def("__call__", &ExpertBlock::answer, nb::arg("x"), nb::arg("chosen"), nb::arg("weights"));
  m.def("gather", &gather, nb::arg("x"), nb::arg("chosen"), nb::arg("stack"));
  m.def("matmul", &matmul, nb::arg("x"), nb::arg("w"), nb::arg("transposed") = false);
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
