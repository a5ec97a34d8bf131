// The sublayer that asks experts: a norm, the router's product, which experts each row asks, what they answer, a norm
// behind it, and what all that is added to.
#include "experts_block.h"
#include "route.h"

namespace modelkit {
namespace {
class Ask : public Sublayer {
 public:
  Ask(const MaybeNorm& norm, const Matrix& router, int gates, int each, bool normalize, const Experts& experts, const MaybeNorm& after)
      : norm_(norm), router_(router), by_{(mk_gates)gates, router.outputs(), each, 1, 1, normalize, 1, nullptr}, experts_(experts),
        after_(after) {
    want(gates >= MK_GATES_SOFTMAX && gates <= MK_GATES_SIGMOID, "no such gates");
    want_matrix(router, width(), "a router must be a single matrix, as wide as x");
    want(router.outputs() == experts.close.count(), "a router must have one output for each expert");
    want_each(each);
    want(each <= router.outputs(), "a row asks no more experts than there are");
    want(!after || !after->centred(), "a norm behind a sublayer must be an RMS norm");
    weights.add(norm, width()), weights.add(router), experts.add_to(weights), weights.add(after, width());
  }
  int width() const override { return experts_.close.outputs(); }

  Run ready(Taken from, const Remembered&, const Arrays&, Arrays&) const override {
    const MaybeRun norm = take(norm_, from);
    const mk_matrix router = take(router_, from);
    ExpertsRun experts(experts_, from);
    const MaybeRun after = take(after_, from);
    return [norm, router, by = by_, experts = std::move(experts), after](const float* x, float* y, int rows) {
      const int k = router.k;
      const Scratch normed = norm ? scratch(rows, k) : nullptr, scores = scratch(rows, by.experts), weights = scratch(rows, by.each);
      const Scratch answers = scratch(rows, k);
      std::vector<int> chosen((size_t)rows * by.each);
      if (norm) (*norm)(x, nullptr, normed.get(), rows, k);
      const float* asks = norm ? normed.get() : x;
      const mk_output to = {scores.get(), (size_t)by.experts, nullptr};
      mk_products(&router, &to, 1, asks, (size_t)k, rows);
      mk_route(&by, scores.get(), rows, chosen.data(), weights.get());
      experts(chosen.data(), weights.get(), by.each, asks, rows, answers.get());
      if (after) return (*after)(answers.get(), x, y, rows, k);
      for (size_t i = 0; i < (size_t)rows * k; i++) y[i] = x[i] + answers[i];
    };
  }

 private:
  MaybeNorm norm_;
  Matrix router_;
  mk_routing by_;
  Experts experts_;
  MaybeNorm after_;
};

void define(nb::module_& m) {
  m.def("asking", [](const MaybeNorm& norm, const Matrix& router, int gates, int each, bool normalize, const std::vector<Matrix>& open, int act,
                     float limit, float slope, const Matrix& close, const MaybeNorm& after) {
    return Part{std::make_shared<Ask>(norm, router, gates, each, normalize, Experts(open, act, limit, slope, close), after)};
  }, nb::arg("norm").none(), nb::arg("router"), nb::arg("gates"), nb::arg("each"), nb::arg("normalize"), nb::arg("open"), nb::arg("act"),
     nb::arg("limit"), nb::arg("slope"), nb::arg("close"), nb::arg("after").none());
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
