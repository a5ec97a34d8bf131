// Parts of sublayers as nodes of their own, and whole sublayers one behind the other as one node: each step is the
// kernel that it would be by itself, so the bits are those of the same steps in nodes of their own.
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

// One of a node's sublayers, in one step.
struct Link {
  std::shared_ptr<const Sublayer> by;
  Remembered of;
  int weights_at = -1;
};

// x through sublayers one behind the other. in: x, then what its links know of.
class Through : public Node {
 public:
  Through(mx::Stream stream, std::vector<Link> links) : Node(stream), links_(std::make_shared<const std::vector<Link>>(std::move(links))) {}
  const char* name() const override { return "ModelkitSublayers"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    hold_inputs_once(in, out);
    const float* x = dense(in[0], stream()).data<float>();
    std::vector<Sublayer::Run> runs;
    runs.reserve(links_->size());
    for (const Link& link : *links_)
      runs.push_back(link.by->ready(link.by->weights.take(in, link.weights_at, stream()), link.of, in, out));
    take_over(in[0], out[0]);  // each reads x for the last time where it adds to it
    dispatch(stream(), [links = links_, runs = std::move(runs), x, y = out[0].data<float>(), rows = rows_of(in[0]), width = in[0].shape(-1)] {
      if (rows) run_all(*links, runs, x, y, (size_t)rows, (size_t)width);
    });
  }

 private:
  static void run_all(const std::vector<Link>& links, const std::vector<Sublayer::Run>& runs, const float* x, float* y, size_t rows, size_t width) {
    const Room room;
    const float *read = x, *sum = x;
    Scratch copy;  // of what several read, where the first of them writes
    for (size_t i = 0; i < runs.size(); i++) {
      if (!links[i].by->beside) {
        read = sum;
        if (read == y && i + 1 < runs.size() && links[i + 1].by->beside) {
          if (!copy) copy = scratch(rows, width);
          std::copy_n(y, rows * width, copy.get()), read = copy.get();
        }
      }
      runs[i](read, sum, y, (int)rows), sum = y;
    }
  }

  std::shared_ptr<const std::vector<Link>> links_;
};

// As Python has sublayers that follow each other. Called with x, for those that remember [rows, tokens, width], and the
// step. Returns the answer, and what each that remembers gives. One that attends: the lanes as they are once the step's tokens
// are written, or what lies beside them. One that folds: states after the step, and its opening products where they are
// asked for.
class Chain {
 public:
  explicit Chain(const std::vector<Part>& parts) : parts_(parts) {
    want(!parts.empty() && !parts[0].by->beside, "a chain must have sublayers, the first of which has none before it");
  }

  Arrays operator()(const Array& x, const Ints& starts, const Ints& counts, int first, const std::vector<Memory>& memories) const {
    want_float(x, "x");
    Arrays in{x};
    std::vector<mx::Shape> shapes{x.shape()};
    std::vector<mx::Dtype> types{mx::float32};
    std::vector<Link> links;
    links.reserve(parts_.size());
    size_t next = 0;
    for (const Part& part : parts_) {
      want(x.ndim() > 0 && x.shape(-1) == part.by->width(), "x must have rows, as wide as the sublayer");
      Link link{part.by, {}};
      if (part.by->remembers()) {
        want(next < memories.size() && x.ndim() == 3, "those that remember must have a memory each, and x [rows, tokens, width]");
        Making making{x.shape(0), x.shape(1), starts, counts, first, in, shapes, types};
        link.of = part.by->remember(memories[next++], making);
      }
      links.push_back(std::move(link));
    }
    want(next == memories.size(), "those that remember must have a memory each");
    for (Link& link : links) link.weights_at = link.by->weights.join(in);
    return Array::make_arrays(std::move(shapes), types, std::make_shared<Through>(processor(), std::move(links)), in);
  }

 private:
  std::vector<Part> parts_;
};

void define(nb::module_& m) {
  using Maybe = std::optional<Array>;
  nb::class_<Norm>(m, "Norm").def(nb::init<bool, const Maybe&, const Maybe&, float>(), nb::arg("centred"),
                                  nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("eps"));
  nb::class_<Part>(m, "Sublayer")
      .def_prop_rw("share", [](const Part& part) { return part.by->share; }, [](Part& part, float share) { part.by->share = share; })
      .def_prop_rw("beside", [](const Part& part) { return part.by->beside; }, [](Part& part, bool beside) { part.by->beside = beside; });
  nb::class_<Chain>(m, "Chain")
      .def(nb::init<const std::vector<Part>&>(), nb::arg("sublayers"))
      .def("__call__", &Chain::operator(), nb::arg("x"), nb::arg("starts") = Ints{}, nb::arg("counts") = Ints{}, nb::arg("first") = 0,
           nb::arg("memories") = std::vector<Memory>{});
  m.def("projections", &projections, nb::arg("x"), nb::arg("norm").none(), nb::arg("matrices"));
  m.def("closing", &closing, nb::arg("x"), nb::arg("matrix"), nb::arg("after").none(), nb::arg("to"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
