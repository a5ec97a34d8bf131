// What stands between two sums of a residual stream as one node: a norm, products of one x, an activation or gate, the
// product that closes, a norm behind it, and what all that is added to. Each step is the kernel that it would be by
// itself, so the bits are those of the same steps in nodes of their own. Attention is in attention_nodes.cpp.
#include "activations.h"
#include "sublayers.h"

namespace modelkit {
namespace {
// norm(x) times several matrices.
class Projections : public Node {
 public:
  Projections(mx::Stream stream, MaybeNorm norm, std::vector<Matrix> matrices, std::shared_ptr<const Weights> weights, int at)
      : Node(stream), norm_(std::move(norm)), matrices_(std::move(matrices)), weights_(std::move(weights)), at_(at) {}
  const char* name() const override { return "ModelkitProjections"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const float* x = dense(in[0], stream()).data<float>();
    Taken from = weights_->take(in, at_, stream());
    const MaybeRun norm = take(norm_, from);
    std::vector<mk_matrix> w = take(matrices_, from);
    std::vector<mk_output> to;
    for (size_t i = 0; i < out.size(); i++) {
      allocate(out[i]);
      to.push_back({out[i].data<float>(), (size_t)w[i].n, nullptr});
    }
    dispatch(stream(), [norm, x, w = std::move(w), to = std::move(to), rows = rows_of(in[0]), k = in[0].shape(-1), held = weights_] {
      if (!rows) return;
      const Scratch normed = norm ? scratch(rows, k) : nullptr;
      if (norm) (*norm)(x, nullptr, normed.get(), rows, k);
      mk_products(w.data(), to.data(), (int)w.size(), norm ? normed.get() : x, (size_t)k, rows);
    });
  }

 private:
  MaybeNorm norm_;
  std::vector<Matrix> matrices_;
  std::shared_ptr<const Weights> weights_;
  int at_;
};

Arrays projections(const Array& x, const MaybeNorm& norm, const std::vector<Matrix>& matrices) {
  want_float(x, "x");
  want(x.ndim() > 0 && !matrices.empty(), "there must be rows and matrices");
  auto weights = std::make_shared<Weights>();
  weights->add(norm, x.shape(-1));
  std::vector<mx::Shape> shapes;
  for (const Matrix& matrix : matrices) {
    want_matrix(matrix, x.shape(-1), "a matrix must be a single one, as wide as x");
    weights->add(matrix);
    shapes.push_back(x.shape());
    shapes.back().back() = matrix.outputs();
  }
  Arrays in{x};
  const int at = weights->join(in);
  const std::vector<mx::Dtype> types(shapes.size(), mx::float32);
  auto node = std::make_shared<Projections>(processor(), norm, matrices, std::move(weights), at);
  return Array::make_arrays(std::move(shapes), types, node, in);
}

class Closed : public Node {
 public:
  Closed(mx::Stream stream, Matrix matrix, MaybeNorm after, std::shared_ptr<const Weights> weights, int at)
      : Node(stream), matrix_(std::move(matrix)), after_(std::move(after)), weights_(std::move(weights)), at_(at) {}
  const char* name() const override { return "ModelkitClosing"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const float *x = dense(in[0], stream()).data<float>(), *to = dense(in[1], stream()).data<float>();
    Taken from = weights_->take(in, at_, stream());
    Closing close{take(matrix_, from), {}, to, nullptr};
    close.after = take(after_, from);
    take_over(in[1], out[0]);
    close.y = out[0].data<float>();
    dispatch(stream(), [close, x, rows = rows_of(in[0]), held = weights_] {
      if (rows) close.run(x, rows);
    });
  }

 private:
  Matrix matrix_;
  MaybeNorm after_;
  std::shared_ptr<const Weights> weights_;
  int at_;
};

// to + after(x W)
Array closing(const Array& x, const Matrix& matrix, const MaybeNorm& after, const Array& to) {
  want_float(x, "x");
  want(x.ndim() > 0, "x must have rows");
  want_closing(matrix, x.shape(-1), after);
  want_float(to, "what is added to");
  mx::Shape shape = x.shape();
  shape.back() = matrix.outputs();
  want(to.shape() == shape, "what is added to must have the shape of the answer");
  auto weights = std::make_shared<Weights>();
  weights->add(matrix), weights->add(after, matrix.outputs());
  Arrays in{x, to};
  const int at = weights->join(in);
  auto node = std::make_shared<Closed>(processor(), matrix, after, std::move(weights), at);
  return Array(std::move(shape), mx::float32, std::move(node), std::move(in));
}

// What lies between a feed-forward block's first products and its last one.
enum class Inner { Act, Halves, Pair };  // act(u); act(g) * u from [g, u] side by side; the same from two matrices

// x + after(inner(norm(x) open) close), what all steps have in common. open: [gate, up], or one matrix: of both, halves,
// or with nothing to gate.
struct Block {
  MaybeNorm norm;
  std::vector<Matrix> open;
  Inner inner;
  mk_act act;
  Matrix close;
  MaybeNorm after;
  Weights weights;

  Block(const MaybeNorm& norm, const std::vector<Matrix>& open, bool halves, int act, const Matrix& close, const MaybeNorm& after)
      : norm(norm), open(open), act((mk_act)act), close(close), after(after) {
    want(act >= 0 && act < MK_ACTS, "no such activation");
    want(open.size() == 1 || (open.size() == 2 && !halves && open[0].outputs() == open[1].outputs()),
         "a feed-forward block opens with one matrix, or with two of a size");
    want(!halves || open[0].outputs() % 2 == 0, "halves must be equal");
    inner = open.size() == 2 ? Inner::Pair : halves ? Inner::Halves : Inner::Act;
    want_closing(close, halves ? open[0].outputs() / 2 : open[0].outputs(), after);
    weights.add(norm, width());
    for (const Matrix& matrix : open) {
      want_matrix(matrix, width(), "a matrix must be a single one, as wide as x");
      weights.add(matrix);
    }
    weights.add(close), weights.add(after, width());
  }
  int width() const { return close.outputs(); }
};

Scratch opened(const std::vector<mk_matrix>& open, Inner inner, mk_act act, const float* x, int rows) {
  const int n = open[0].n, k = open[0].k;
  const struct mk_gate gate = {act, 0, 0};
  Scratch first = scratch(rows, n);
  if (inner == Inner::Pair) {
    mk_gated_products(open.data(), gate, first.get(), x, (size_t)k, rows);
    return first;
  }
  const mk_output to = {first.get(), (size_t)n, nullptr};
  mk_products(open.data(), &to, 1, x, (size_t)k, rows);
  if (inner == Inner::Act) {
    mk_act_rows(act, first.get(), n, first.get(), rows, n);
    return first;
  }
  Scratch half = scratch(rows, n / 2);
  mk_gate_rows(gate, first.get(), n, first.get() + n / 2, n, half.get(), rows, n / 2);
  return half;
}

class Fed : public Node {
 public:
  Fed(mx::Stream stream, std::shared_ptr<const Block> by, int at) : Node(stream), by_(std::move(by)), at_(at) {}
  const char* name() const override { return "ModelkitFeedForward"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const float* x = dense(in[0], stream()).data<float>();
    Taken from = by_->weights.take(in, at_, stream());
    const MaybeRun norm = take(by_->norm, from);
    std::vector<mk_matrix> open = take(by_->open, from);
    Closing close{take(by_->close, from), {}, x, nullptr};
    close.after = take(by_->after, from);
    take_over(in[0], out[0]); /* x is read for the last time where it is added to */
    close.y = out[0].data<float>();
    dispatch(stream(), [by = by_, norm, open = std::move(open), close, x, rows = rows_of(in[0]), k = in[0].shape(-1)] {
      if (!rows) return;
      const Scratch normed = norm ? scratch(rows, k) : nullptr;
      if (norm) (*norm)(x, nullptr, normed.get(), rows, k);
      const Scratch done = opened(open, by->inner, by->act, norm ? normed.get() : x, rows);
      close.run(done.get(), rows);
    });
  }

 private:
  std::shared_ptr<const Block> by_;
  int at_;
};

// As Python has a block: called with x.
class FeedForward {
 public:
  FeedForward(const MaybeNorm& norm, const std::vector<Matrix>& open, bool halves, int act, const Matrix& close, const MaybeNorm& after)
      : by_(std::make_shared<Block>(norm, open, halves, act, close, after)) {}

  Array added(const Array& x) const {
    want_rows(x, by_->width());
    Arrays in{x};
    const int at = by_->weights.join(in);
    return Array(x.shape(), mx::float32, std::make_shared<Fed>(processor(), by_, at), std::move(in));
  }

 private:
  std::shared_ptr<const Block> by_;
};

void define(nb::module_& m) {
  using Maybe = std::optional<Array>;
  nb::class_<Norm>(m, "Norm").def(nb::init<bool, const Maybe&, const Maybe&, float>(), nb::arg("centred"),
                                  nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("eps"));
  nb::class_<FeedForward>(m, "FeedForward")
      .def(nb::init<const MaybeNorm&, const std::vector<Matrix>&, bool, int, const Matrix&, const MaybeNorm&>(), nb::arg("norm").none(),
           nb::arg("open"), nb::arg("halves"), nb::arg("act"), nb::arg("close"), nb::arg("after").none())
      .def("__call__", &FeedForward::added, nb::arg("x"));
  m.def("projections", &projections, nb::arg("x"), nb::arg("norm").none(), nb::arg("matrices"));
  m.def("closing", &closing, nb::arg("x"), nb::arg("matrix"), nb::arg("after").none(), nb::arg("to"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
