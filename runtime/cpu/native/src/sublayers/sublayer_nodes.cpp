// Parts of sublayers as nodes of their own: each step is the kernel that it would be by itself, so the bits are those of
// the same steps in nodes of their own.
#include "sublayers/sublayers.h"

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
    Closing close{take(matrix_, from), {}, 1};
    close.after = take(after_, from);
    take_over(in[1], out[0]);
    dispatch(stream(), [close, x, to, y = out[0].data<float>(), rows = rows_of(in[0]), held = weights_] {
      if (rows) close.run(x, to, y, rows);
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

void define(nb::module_& m) {
  using Maybe = std::optional<Array>;
  nb::class_<Norm>(m, "Norm").def(nb::init<bool, const Maybe&, const Maybe&, float, float>(), nb::arg("centred"),
                                  nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("eps"), nb::arg("times") = 1.0f);
  nb::class_<Part>(m, "Sublayer")
      .def_prop_rw("share", [](const Part& part) { return part.by->share; }, [](Part& part, float share) { part.by->share = share; })
      .def("sum_by", [](const Part& part, const Held<Sums>& sums) { part.by->summing = sums.by; }, nb::arg("sums"))
      .def_prop_rw("beside", [](const Part& part) { return part.by->beside; }, [](Part& part, bool beside) { part.by->beside = beside; });
  m.def("projections", &projections, nb::arg("x"), nb::arg("norm").none(), nb::arg("matrices"));
  m.def("closing", &closing, nb::arg("x"), nb::arg("matrix"), nb::arg("after").none(), nb::arg("to"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
