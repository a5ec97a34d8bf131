// What stands between two sums of a residual stream as one node: a norm, products of one x, an activation or gate, the
// product that closes, a norm behind it, and what all that is added to. Each step is the kernel that it would be by
// itself, so the bits are those of the same steps in nodes of their own.
#include <memory>

#include "activations.h"
#include "norms.h"
#include "products_nodes.h"

namespace modelkit {
namespace {
void want(bool good, const char* what) {
  if (!good) throw std::invalid_argument(what);
}

void want_matrix(const Matrix& matrix, int width, const char* what) {
  want(matrix.count() == 1 && matrix.width() == width, what);
}

// A norm as Python hands it over. RMS norms have no bias.
class Norm {
 public:
  Norm(bool centred, const std::optional<Array>& weight, const std::optional<Array>& bias, float eps)
      : centred_(centred), has_weight_(weight.has_value()), eps_(eps) {
    want(centred || !bias, "an RMS norm has no bias");
    for (const auto& part : {weight, bias}) {
      if (!part) continue;
      want_float(*part, "what a norm multiplies by and adds");
      want(part->ndim() == 1, "what a norm multiplies by and adds must have one dimension");
      arrays_.push_back(*part);
    }
  }

  void add_inputs(Arrays& inputs, int width) const {
    for (const Array& part : arrays_) {
      want(part.shape(0) == width, "a norm must be as wide as its input");
      inputs.push_back(part);
    }
  }

  // From now on with the arrays where they were evaluated.
  void take(const Arrays& inputs, size_t& at, mx::Stream stream) {
    weight_ = has_weight_ ? dense(inputs[at++], stream).data<float>() : nullptr;
    bias_ = arrays_.size() > (size_t)has_weight_ ? dense(inputs[at++], stream).data<float>() : nullptr;
  }

  // y = add + norm(x), all dense; y may be x. add: nullptr for none, and not for a centred norm.
  void run(const float* x, const float* add, float* y, int rows, int width) const {
    if (!centred_) mk_rms_norm(x, width, weight_, add, width, y, rows, width, eps_);
    else mk_layer_norm(x, width, weight_, bias_, y, rows, width, eps_);
  }

  bool centred() const { return centred_; }

 private:
  bool centred_, has_weight_;
  float eps_;
  Arrays arrays_;
  const float *weight_ = nullptr, *bias_ = nullptr;
};

using Scratch = std::unique_ptr<float[]>;
Scratch scratch(size_t rows, size_t width) { return Scratch(new float[rows * width]); }

// norm(x) times several matrices.
class Projections : public Node {
 public:
  Projections(mx::Stream stream, std::optional<Norm> norm, std::vector<Matrix> matrices)
      : Node(stream), norm_(std::move(norm)), matrices_(std::move(matrices)) {}
  const char* name() const override { return "ModelkitProjections"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const float* x = dense(in[0], stream()).data<float>();
    size_t at = 1;
    std::optional<Norm> norm = norm_;
    if (norm) norm->take(in, at, stream());
    std::vector<mk_matrix> w;
    std::vector<mk_output> to;
    for (size_t i = 0; i < out.size(); i++) {
      w.push_back(matrices_[i].take(in, at, stream()));
      allocate(out[i]);
      to.push_back({out[i].data<float>(), (size_t)w[i].n, nullptr});
    }
    dispatch(stream(), [norm, x, w = std::move(w), to = std::move(to), rows = rows_of(in[0]), k = in[0].shape(-1)] {
      if (!rows) return;
      const Scratch normed = norm ? scratch(rows, k) : nullptr;
      if (norm) norm->run(x, nullptr, normed.get(), rows, k);
      mk_products(w.data(), to.data(), (int)w.size(), norm ? normed.get() : x, (size_t)k, rows);
    });
  }

 private:
  std::optional<Norm> norm_;
  std::vector<Matrix> matrices_;
};

Arrays projections(const Array& x, const std::optional<Norm>& norm, const std::vector<Matrix>& matrices) {
  want_float(x, "x");
  want(x.ndim() > 0 && !matrices.empty(), "there must be rows and matrices");
  Arrays in{x};
  if (norm) norm->add_inputs(in, x.shape(-1));
  std::vector<mx::Shape> shapes;
  for (const Matrix& matrix : matrices) {
    want_matrix(matrix, x.shape(-1), "a matrix must be a single one, as wide as x");
    matrix.add_inputs(in);
    shapes.push_back(x.shape());
    shapes.back().back() = matrix.outputs();
  }
  const std::vector<mx::Dtype> types(shapes.size(), mx::float32);
  return Array::make_arrays(std::move(shapes), types, std::make_shared<Projections>(processor(), norm, matrices), in);
}

// The last product of a sublayer: to + after(x W), or x W + to where there is no norm behind it.
struct Closing {
  mk_matrix w;
  std::optional<Norm> after;
  const float* to;
  float* y;

  void run(const float* x, int rows) const {
    const mk_output product = {y, (size_t)w.n, after ? nullptr : to};
    if (!after) return mk_products(&w, &product, 1, x, (size_t)w.k, rows);
    const Scratch raw = scratch(rows, w.n); /* y may lie where `to` does */
    const mk_output aside = {raw.get(), (size_t)w.n, nullptr};
    mk_products(&w, &aside, 1, x, (size_t)w.k, rows);
    after->run(raw.get(), to, y, rows, w.n);
  }
};

void want_closing(const Matrix& matrix, int width, const std::optional<Norm>& after, const Array& to) {
  want_matrix(matrix, width, "the closing matrix must be a single one, as wide as what it multiplies");
  want(!after || !after->centred(), "a norm behind a sublayer must be an RMS norm");
  want_float(to, "what is added to");
  want(to.shape(-1) == matrix.outputs(), "what is added to must have the shape of the answer");
}

class Closed : public Node {
 public:
  Closed(mx::Stream stream, Matrix matrix, std::optional<Norm> after)
      : Node(stream), matrix_(std::move(matrix)), after_(std::move(after)) {}
  const char* name() const override { return "ModelkitClosing"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const float *x = dense(in[0], stream()).data<float>(), *to = dense(in[1], stream()).data<float>();
    size_t at = 2;
    Closing close{matrix_.take(in, at, stream()), after_, to, nullptr};
    if (close.after) close.after->take(in, at, stream());
    take_over(in[1], out[0]);
    close.y = out[0].data<float>();
    dispatch(stream(), [close, x, rows = rows_of(in[0])] {
      if (rows) close.run(x, rows);
    });
  }

 private:
  Matrix matrix_;
  std::optional<Norm> after_;
};

// to + after(x W)
Array closing(const Array& x, const Matrix& matrix, const std::optional<Norm>& after, const Array& to) {
  want_float(x, "x");
  want(x.ndim() > 0, "x must have rows");
  want_closing(matrix, x.shape(-1), after, to);
  mx::Shape shape = x.shape();
  shape.back() = matrix.outputs();
  want(to.shape() == shape, "what is added to must have the shape of the answer");
  Arrays in{x, to};
  matrix.add_inputs(in);
  if (after) after->add_inputs(in, matrix.outputs());
  return Array(shape, mx::float32, std::make_shared<Closed>(processor(), matrix, after), std::move(in));
}

// What lies between a feed-forward block's first products and its last one.
enum class Inner { Act, Halves, Pair };  // act(u); act(g) * u from [g, u] side by side; the same from two matrices

class FeedForward : public Node {
 public:
  FeedForward(mx::Stream stream, std::optional<Norm> norm, std::vector<Matrix> open, Inner inner, mk_act act, Matrix close,
              std::optional<Norm> after)
      : Node(stream), norm_(std::move(norm)), open_(std::move(open)), inner_(inner), act_(act), close_(std::move(close)),
        after_(std::move(after)) {}
  const char* name() const override { return "ModelkitFeedForward"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const float* x = dense(in[0], stream()).data<float>();
    size_t at = 1;
    std::optional<Norm> norm = norm_;
    if (norm) norm->take(in, at, stream());
    std::vector<mk_matrix> open;
    for (const Matrix& matrix : open_) open.push_back(matrix.take(in, at, stream()));
    Closing close{close_.take(in, at, stream()), after_, x, nullptr};
    if (close.after) close.after->take(in, at, stream());
    take_over(in[0], out[0]); /* x is read for the last time where it is added to */
    close.y = out[0].data<float>();
    dispatch(stream(), [norm, open = std::move(open), inner = inner_, act = act_, close, x, rows = rows_of(in[0]), k = in[0].shape(-1)] {
      if (!rows) return;
      const Scratch normed = norm ? scratch(rows, k) : nullptr;
      if (norm) norm->run(x, nullptr, normed.get(), rows, k);
      const Scratch done = opened(open, inner, act, norm ? normed.get() : x, rows);
      close.run(done.get(), rows);
    });
  }

 private:
  static Scratch opened(const std::vector<mk_matrix>& open, Inner inner, mk_act act, const float* x, int rows) {
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

  std::optional<Norm> norm_;
  std::vector<Matrix> open_;
  Inner inner_;
  mk_act act_;
  Matrix close_;
  std::optional<Norm> after_;
};

// x + after(inner(norm(x) open) close). open: [gate, up], or one matrix: of both, halves, or with nothing to gate.
Array feed_forward(const Array& x, const std::optional<Norm>& norm, const std::vector<Matrix>& open, bool halves, int act,
                   const Matrix& close, const std::optional<Norm>& after) {
  want_float(x, "x");
  want(x.ndim() > 0, "x must have rows");
  want(act >= 0 && act < MK_ACTS, "no such activation");
  want(open.size() == 1 || (open.size() == 2 && !halves && open[0].outputs() == open[1].outputs()),
       "a feed-forward block opens with one matrix, or with two of a size");
  want(!halves || open[0].outputs() % 2 == 0, "halves must be equal");
  const Inner inner = open.size() == 2 ? Inner::Pair : halves ? Inner::Halves : Inner::Act;
  want_closing(close, halves ? open[0].outputs() / 2 : open[0].outputs(), after, x);
  Arrays in{x};
  if (norm) norm->add_inputs(in, x.shape(-1));
  for (const Matrix& matrix : open) {
    want_matrix(matrix, x.shape(-1), "a matrix must be a single one, as wide as x");
    matrix.add_inputs(in);
  }
  close.add_inputs(in);
  if (after) after->add_inputs(in, close.outputs());
  auto node = std::make_shared<FeedForward>(processor(), norm, open, inner, (mk_act)act, close, after);
  return Array(x.shape(), mx::float32, std::move(node), std::move(in));
}

void define(nb::module_& m) {
  using Maybe = std::optional<Array>;
  nb::class_<Norm>(m, "Norm").def(nb::init<bool, const Maybe&, const Maybe&, float>(), nb::arg("centred"),
                                  nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("eps"));
  m.def("projections", &projections, nb::arg("x"), nb::arg("norm").none(), nb::arg("matrices"));
  m.def("closing", &closing, nb::arg("x"), nb::arg("matrix"), nb::arg("after").none(), nb::arg("to"));
  m.def("feed_forward", &feed_forward, nb::arg("x"), nb::arg("norm").none(), nb::arg("open"), nb::arg("halves"), nb::arg("act"),
        nb::arg("close"), nb::arg("after").none());
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
