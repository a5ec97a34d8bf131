// The sublayer that is a gated convolution: a norm, one product (before | after | x), after * conv(before * x), the product that
// closes, a norm behind it, and what all that is added to.
#include "sublayers/rules.h"

namespace modelkit {
namespace {
class ShortConv : public Sublayer {
 public:
  ShortConv(const MaybeNorm& norm, const Matrix& open, const Conv& conv, const Matrix& close, const MaybeNorm& after)
      : norm_(norm), open_(open), conv_(conv), close_(close), after_(after) {
    want_closing(close, conv.filters.shape(1), after);
    want_matrix(open, width(), "a matrix must be a single one, as wide as x");
    want(open.outputs() == 3 * conv.filters.shape(1), "the opening matrix must have three parts of the convolution's channels");
    weights.add(norm, width()), weights.add(open), conv.add_to(weights), weights.add(close), weights.add(after, width());
  }
  int width() const override { return close_.outputs(); }
  bool remembers() const override { return true; }

  Remembered remember(const Memory& memory, Making& made) const override {
    want(std::holds_alternative<States>(memory), "one that folds must have states");
    return folds(std::get<States>(memory), {{made.rows, conv_.taps() - 1, conv_.filters.shape(1)}}, {open_.outputs()}, made);
  }

  Run ready(Taken from, const Remembered& remembered, const Arrays& in, Arrays& out) const override {
    const Folding& of = std::get<Folding>(remembered);
    auto place = [&](int at) { return allocate(out[at]), out[at].data<float>(); };
    const MaybeRun norm = take(norm_, from);
    const mk_matrix open = take(open_, from);
    const mk_conv conv = conv_.take(of, from, dense(in[of.before], from.stream).data<float>(), place(of.after));
    Closing close{take(close_, from), {}, share, summing};
    close.after = take(after_, from);
    return [norm, open, conv, close, asked = of.products < 0 ? nullptr : place(of.products)](const float* x, const float* to, float* y, int rows) {
      const int k = open.k, c = conv.channels;
      const Scratch normed = norm ? scratch(rows, k) : nullptr, room = asked ? nullptr : scratch(rows, open.n), seen = scratch(rows, c);
      if (norm) (*norm)(x, nullptr, normed.get(), rows, k);
      const mk_output parts = {asked ? asked : room.get(), (size_t)open.n, nullptr};
      mk_products(&open, &parts, 1, norm ? normed.get() : x, (size_t)k, rows);
      mk_conv job = conv;
      auto part = [&](int i) { return mk_tokens{parts.y + i * c, (ptrdiff_t)open.n * conv.width, open.n}; };
      job.gate_in = part(0), job.gate_out = part(1), job.x = part(2), job.y = seen.get();
      mk_conv_rows(job);
      close.run(seen.get(), to, y, rows);
    };
  }

 private:
  MaybeNorm norm_;
  Matrix open_;
  Conv conv_;
  Matrix close_;
  MaybeNorm after_;
};

void define(nb::module_& m) {
  m.def("short_conv", [](const MaybeNorm& norm, const Matrix& open, const Array& filters, const Maybe& bias, const Matrix& close,
                         const MaybeNorm& after) {
    return Part{std::make_shared<ShortConv>(norm, open, Conv(filters, bias), close, after)};
  }, nb::arg("norm").none(), nb::arg("open"), nb::arg("filters"), nb::arg("bias").none(), nb::arg("close"), nb::arg("after").none());
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
