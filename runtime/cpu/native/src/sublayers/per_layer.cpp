// Small sublayers around others: one that is gated by numbers that the step brings, and one that multiplies the stream.
#include "rows/activations.h"
#include "sublayers/sublayers.h"

namespace modelkit {
namespace {
// to + after((act(x open) * own) close), where own are `open`'s outputs as many of the numbers that a token brings, the `place`th.
class PerLayerGate : public Sublayer {
 public:
  PerLayerGate(const Matrix& open, int act, int place, const Matrix& close, const MaybeNorm& after)
      : open_(open), act_((mk_act)act), place_(place), close_(close), after_(after) {
    want(act >= 0 && act < MK_ACTS && place >= 0, "no such activation, or place");
    want_matrix(open, width(), "a matrix must be a single one, as wide as x");
    want_closing(close, open.outputs(), after);
    weights.add(open), weights.add(close), weights.add(after, width());
  }
  int width() const override { return close_.outputs(); }
  bool remembers() const override { return true; }
  Remembered remember(const Memory& memory, Making& made) const override {
    return given_of(memory, made, (place_ + 1) * open_.outputs());
  }
  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays&) const override {
    const auto weighed = once(weighed_, from, [&] {
      Weighed w{take(open_, from), {take(close_, from), {}, share, summing}};
      w.close.after = take(after_, from);
      return w;
    });
    const Array own = dense(in[std::get<int>(of)], from.stream);
    const float* numbers = own.data<float>() + (size_t)place_ * open_.outputs();
    return [weighed, act = act_, numbers, apart = own.shape(2)](const float* x, const float* to, float* y, int rows) {
      const int n = weighed->open.n;
      const Scratch gate = scratch(rows, n);
      const mk_output into = {gate.get(), (size_t)n, nullptr};
      mk_products(&weighed->open, &into, 1, x, (size_t)weighed->open.k, rows);
      mk_gate_rows({act, 0, 0}, gate.get(), n, numbers, apart, gate.get(), rows, n);
      weighed->close.run(gate.get(), to, y, rows);
    };
  }

 private:
  struct Weighed {
    mk_matrix open;
    Closing close;
  };
  Matrix open_;
  mk_act act_;
  int place_;
  Matrix close_;
  MaybeNorm after_;
  mutable std::shared_ptr<const Weighed> weighed_;
};

// to * by: what has been added up so far.
class Multiply : public Sublayer {
 public:
  Multiply(const Array& by, int width) : width_(width) {
    want(by.size() == 1 && width > 0, "the stream is multiplied by one number");
    weights.add(by);
  }
  int width() const override { return width_; }
  Run ready(Taken from, const Remembered&, const Arrays&, Arrays&) const override {
    return [by = from.floats(), width = width_](const float*, const float* to, float* y, int rows) {
      for (size_t i = 0; i < (size_t)rows * width; i++) y[i] = to[i] * *by;
    };
  }

 private:
  int width_;
};

void define(nb::module_& m) {
  m.def("per_layer_gate", [](const Matrix& open, int act, int place, const Matrix& close, const MaybeNorm& after) {
    return Part{std::make_shared<PerLayerGate>(open, act, place, close, after)};
  }, nb::arg("open"), nb::arg("act"), nb::arg("place"), nb::arg("close"), nb::arg("after").none());
  m.def("multiply", [](const Array& by, int width) { return Part{std::make_shared<Multiply>(by, width)}; }, nb::arg("by"), nb::arg("width"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
