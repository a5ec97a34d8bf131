// The sublayer that asks experts: a norm, the router's product, which experts each row asks, what they answer and what one
// that is always asked answers beside them, a norm behind it, and what all that is added to.
#include "experts_block.h"
#include "feeding.h"
#include "routing.h"

namespace modelkit {
namespace {
using MaybeFeeding = std::optional<Feeding>;
using MaybeMatrix = std::optional<Matrix>;
struct Job;

class Ask : public Sublayer {
 public:
  // shared: the expert that is always asked, its answer multiplied by the sigmoid of `gate` where there is one.
  Ask(const MaybeNorm& norm, const Matrix& router, const Routing& routing, const Experts& experts, const MaybeFeeding& shared,
      const MaybeMatrix& gate, const MaybeNorm& after)
      : norm_(norm), router_(router), routing_(routing), by_(routing.among(router.outputs())), experts_(experts), shared_(shared), gate_(gate),
        after_(after) {
    want_matrix(router, width(), "a router must be a single matrix, as wide as x");
    want(router.outputs() == experts.close.count(), "a router must have one output for each expert");
    want_each(by_.each);
    want(!after || !after->centred(), "a norm behind a sublayer must be an RMS norm");
    want(!shared || shared->close.outputs() == width(), "what always answers must be as wide as x");
    want(!gate || (shared && gate->outputs() == 1), "a gate is one number, of what always answers");
    weights.add(norm, width()), weights.add(router);
    if (routing.correction) weights.add(*routing.correction);
    experts.add_to(weights);
    if (shared) shared->add_to(weights);
    if (gate) {
      want_matrix(*gate, width(), "a matrix must be a single one, as wide as x");
      weights.add(*gate);
    }
    weights.add(after, width());
  }
  int width() const override { return experts_.close.outputs(); }
  Run ready(Taken from, const Remembered&, const Arrays&, Arrays&) const override;

 private:
  MaybeNorm norm_;
  Matrix router_;
  Routing routing_;
  mk_routing by_;
  Experts experts_;
  MaybeFeeding shared_;
  MaybeMatrix gate_;
  MaybeNorm after_;
  mutable std::shared_ptr<const Job> job_;
};

// What its kernels need. One step after the other, each for all rows.
struct Job {
  MaybeRun norm;
  mk_matrix router;
  mk_routing by;
  ExpertsRun experts;
  std::optional<FeedingRun> shared;
  std::optional<mk_matrix> gate;
  MaybeRun after;
  float share;

  void run(const float* x, const float* to, float* y, int rows) const {
    const int k = router.k;
    const Scratch normed = norm ? scratch(rows, k) : nullptr, answers = scratch(rows, k);
    if (norm) (*norm)(x, nullptr, normed.get(), rows, k);
    const float* asks = norm ? normed.get() : x;
    ask(asks, answers.get(), rows);
    if (shared) add_shared(asks, answers.get(), rows);
    add_answers(after, share, answers.get(), to, y, rows, k);
  }

 private:
  void ask(const float* x, float* answers, int rows) const {
    const Scratch scores = scratch(rows, by.experts), weights = scratch(rows, by.each);
    std::vector<int> chosen((size_t)rows * by.each);
    const mk_output to = {scores.get(), (size_t)by.experts, nullptr};
    mk_products(&router, &to, 1, x, (size_t)router.k, rows);
    mk_route(&by, scores.get(), rows, chosen.data(), weights.get());
    experts(chosen.data(), weights.get(), by.each, x, rows, answers);
  }

  void add_shared(const float* x, float* answers, int rows) const {
    const int k = router.k;
    const Scratch opened = shared->opened(x, rows), answer = scratch(rows, k), open = scratch(rows, 1);
    const mk_output to = {answer.get(), (size_t)k, nullptr}, to_gate = {open.get(), 1, nullptr};
    mk_products(&shared->close, &to, 1, opened.get(), (size_t)shared->close.k, rows);
    if (gate) {
      mk_products(&*gate, &to_gate, 1, x, (size_t)k, rows);
      mk_act_rows(MK_SIGMOID, open.get(), 1, open.get(), rows, 1);
    }
    for (int r = 0; r < rows; r++) {
      float *sum = answers + (size_t)r * k, *own = answer.get() + (size_t)r * k;
      if (gate)
        for (int i = 0; i < k; i++) own[i] *= open[r];
      for (int i = 0; i < k; i++) sum[i] += own[i];
    }
  }
};

Sublayer::Run Ask::ready(Taken from, const Remembered&, const Arrays&, Arrays&) const {
  const auto job = once(job_, from, [&] {
    const MaybeRun norm = take(norm_, from);
    const mk_matrix router = take(router_, from);
    mk_routing by = by_;
    if (routing_.correction) by.correction = from.floats();
    Job job{norm, router, by, ExpertsRun(experts_, from), {}, {}, {}, share};
    if (shared_) job.shared.emplace(*shared_, from);
    if (gate_) job.gate = take(*gate_, from);
    job.after = take(after_, from);
    return job;
  });
  return [job](const float* x, const float* to, float* y, int rows) { job->run(x, to, y, rows); };
}

void define(nb::module_& m) {
  m.def("asking", [](const MaybeNorm& norm, const Matrix& router, const Routing& routing, const std::vector<Matrix>& open, int act, float limit,
                     float slope, const Matrix& close, const MaybeFeeding& shared, const MaybeMatrix& gate, const MaybeNorm& after) {
    return Part{std::make_shared<Ask>(norm, router, routing, Experts(open, act, limit, slope, close), shared, gate, after)};
  }, nb::arg("norm").none(), nb::arg("router"), nb::arg("routing"), nb::arg("open"), nb::arg("act"), nb::arg("limit"), nb::arg("slope"),
     nb::arg("close"), nb::arg("shared").none(), nb::arg("gate").none(), nb::arg("after").none());
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
