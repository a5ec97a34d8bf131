// The sublayer that feeds forward: a norm, products of one x, an activation or gate, the product that closes, a norm
// behind it, and what all that is added to.
#include "activations.h"
#include "sublayers.h"

namespace modelkit {
namespace {
// What lies between a feed-forward block's first products and its last one.
enum class Inner { Act, Halves, Pair };  // act(u); act(g) * u from [g, u] side by side; the same from two matrices

// x + after(inner(norm(x) open) close). open: [gate, up], or one matrix: of both, halves, or with nothing to gate.
class FeedForward : public Sublayer {
 public:
  FeedForward(const MaybeNorm& norm, const std::vector<Matrix>& open, bool halves, int act, const Matrix& close, const MaybeNorm& after)
      : norm_(norm), open_(open), act_((mk_act)act), close_(close), after_(after) {
    want(act >= 0 && act < MK_ACTS, "no such activation");
    want(open.size() == 1 || (open.size() == 2 && !halves && open[0].outputs() == open[1].outputs()),
         "a feed-forward block opens with one matrix, or with two of a size");
    want(!halves || open[0].outputs() % 2 == 0, "halves must be equal");
    inner_ = open.size() == 2 ? Inner::Pair : halves ? Inner::Halves : Inner::Act;
    want_closing(close, halves ? open[0].outputs() / 2 : open[0].outputs(), after);
    weights.add(norm, width());
    for (const Matrix& matrix : open) {
      want_matrix(matrix, width(), "a matrix must be a single one, as wide as x");
      weights.add(matrix);
    }
    weights.add(close), weights.add(after, width());
  }
  int width() const override { return close_.outputs(); }

  Run ready(Taken from, const Remembered&, const Arrays&, Arrays&) const override {
    const MaybeRun norm = take(norm_, from);
    std::vector<mk_matrix> open = take(open_, from);
    Closing close{take(close_, from), {}};
    close.after = take(after_, from);
    return [norm, open = std::move(open), close, inner = inner_, act = act_](const float* x, float* y, int rows) {
      const int k = open[0].k;
      const Scratch normed = norm ? scratch(rows, k) : nullptr;
      if (norm) (*norm)(x, nullptr, normed.get(), rows, k);
      const Scratch done = opened(open, inner, act, norm ? normed.get() : x, rows);
      close.run(done.get(), x, y, rows);
    };
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

  MaybeNorm norm_;
  std::vector<Matrix> open_;
  Inner inner_;
  mk_act act_;
  Matrix close_;
  MaybeNorm after_;
};

void define(nb::module_& m) {
  m.def("feed_forward", [](const MaybeNorm& norm, const std::vector<Matrix>& open, bool halves, int act, const Matrix& close, const MaybeNorm& after) {
    return Part{std::make_shared<FeedForward>(norm, open, halves, act, close, after)};
  }, nb::arg("norm").none(), nb::arg("open"), nb::arg("halves"), nb::arg("act"), nb::arg("close"), nb::arg("after").none());
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
