// The sublayer that asks experts: a norm, the router's product, which experts each row asks, what they answer and what one
// that is always asked answers beside them, a norm behind it, and what all that is added to. Routers and the one that is
// always asked may read x through norms of their own, and either answer may have one behind it.
#include "experts/route_nodes.h"
#include "sublayers/experts_block.h"
#include "sublayers/feeding.h"

namespace modelkit {
namespace {
using MaybeFeeding = std::optional<Feeding>;
using MaybeMatrix = std::optional<Matrix>;
struct Job;

// What a router reads where it does not read what experts do: an RMS norm of x, times a number.
using Reading = std::pair<Norm, float>;

class Mixture : public Sublayer {
 public:
  // shared: the expert that is always asked, its answer multiplied by the sigmoid of `gate` where there is one.
  // answered: the norm of experts' answers. shared_norm: of what the shared one reads of x, in place of `norm`; shared_after:
  // of its answer. fed: weights multiply what experts read, in place of what they answer.
  Mixture(const MaybeNorm& norm, const Matrix& router, const Routing& routing, const Experts& experts, const MaybeFeeding& shared,
      const MaybeMatrix& gate, const MaybeNorm& after, const std::optional<Reading>& reading, const MaybeNorm& answered,
      const MaybeNorm& shared_norm, const MaybeNorm& shared_after, bool fed)
      : norm_(norm), router_(router), routing_(routing), by_(routing.among(router.outputs())), experts_(experts), shared_(shared), gate_(gate),
        after_(after), reading_(reading), answered_(answered), shared_norm_(shared_norm), shared_after_(shared_after),
        fed_(fed) {
    want_matrix(router, width(), "a router must be a single matrix, as wide as x");
    want(router.outputs() == experts.close.count(), "a router must have one output for each expert");
    want_each(by_.each);
    want(!after || !after->centred(), "a norm behind a sublayer must be an RMS norm");
    want(!shared || shared->close.outputs() == width(), "what always answers must be as wide as x");
    want(!gate || (shared && gate->outputs() == 1), "a gate is one number, of what always answers");
    want(shared || (!shared_norm && !shared_after), "norms of what always answers are those of something");
    want(!gate || !shared_after, "what always answers has a gate, or a norm behind it");
    for (const MaybeNorm* own : {&answered, &shared_after}) want(!*own || !(*own)->centred(), "a norm of answers must be an RMS norm");
    want(!reading || !reading->first.centred(), "a router reads through an RMS norm");
    weights.add(norm, width()), weights.add(router);
    if (routing.correction) weights.add(*routing.correction);
    if (routing.shares) weights.add(*routing.shares);
    experts.add_to(weights);
    if (shared) shared->add_to(weights);
    if (gate) {
      want_matrix(*gate, width(), "a matrix must be a single one, as wide as x");
      weights.add(*gate);
    }
    weights.add(after, width());
    if (reading) weights.add(reading->first, width());
    weights.add(answered, width()), weights.add(shared_norm, width()), weights.add(shared_after, width());
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
  std::optional<Reading> reading_;
  MaybeNorm answered_, shared_norm_, shared_after_;
  bool fed_;
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
  MaybeRun reading;
  float times;  // what the router reads is multiplied by
  MaybeRun answered, shared_norm, shared_after;
  bool fed;
  Summing summing = nullptr;

  void run(const float* x, const float* to, float* y, int rows) const {
    const int k = router.k;
    const Scratch normed = norm ? scratch(rows, k) : nullptr, answers = scratch(rows, k);
    if (norm) (*norm)(x, nullptr, normed.get(), rows, k);
    const float* asks = norm ? normed.get() : x;
    ask(x, asks, answers.get(), rows);
    if (answered) (*answered)(answers.get(), nullptr, answers.get(), rows, k);
    if (shared) add_shared(x, asks, answers.get(), rows);
    if (summing) summing->sum(answers.get(), answers.get(), (size_t)rows * k);
    add_answers(after, share, answers.get(), to, y, rows, k);
  }

 private:
  // raw: what the sublayer reads; x: what experts read of it.
  void ask(const float* raw, const float* x, float* answers, int rows) const {
    const Scratch scores = scratch(rows, by.experts), weights = scratch(rows, by.each);
    std::vector<int> chosen((size_t)rows * by.each);
    const mk_output to = {scores.get(), (size_t)by.experts, nullptr};
    const Scratch own = reading ? scratch(rows, router.k) : nullptr;
    if (reading) {
      (*reading)(raw, nullptr, own.get(), rows, router.k);
      for (size_t i = 0; i < (size_t)rows * router.k; i++) own[i] *= times;
    }
    mk_products(&router, &to, 1, own ? own.get() : x, (size_t)router.k, rows);
    mk_route(&by, scores.get(), rows, chosen.data(), weights.get());
    if (fed) feed(chosen, weights.get(), x, rows, answers);
    else experts(chosen.data(), weights.get(), by.each, x, rows, answers);
  }

  // Each of the chosen reads x times its weight; their answers are added up in their order.
  void feed(const std::vector<int>& chosen, const float* weights, const float* x, int rows, float* answers) const {
    const size_t k = (size_t)router.k, each = (size_t)by.each, asked = chosen.size();
    const Scratch read = scratch(asked, k), told = scratch(asked, k), ones = scratch(asked, 1);
    std::fill_n(ones.get(), asked, 1.0f);
    for (size_t at = 0; at < asked; at++)
      for (size_t i = 0; i < k; i++) read[at * k + i] = x[at / each * k + i] * weights[at];
    experts(chosen.data(), ones.get(), 1, read.get(), (int)asked, told.get());
    for (size_t row = 0; row < (size_t)rows; row++) {
      std::copy_n(told.get() + row * each * k, k, answers + row * k);
      for (size_t at = row * each + 1; at < (row + 1) * each; at++)
        for (size_t i = 0; i < k; i++) answers[row * k + i] += told[at * k + i];
    }
  }

  void add_shared(const float* raw, const float* x, float* answers, int rows) const {
    const int k = router.k;
    const Scratch normed = shared_norm ? scratch(rows, k) : nullptr;
    if (shared_norm) (*shared_norm)(raw, nullptr, normed.get(), rows, k);
    const Scratch opened = shared->opened(normed ? normed.get() : x, rows), answer = scratch(rows, k), open = scratch(rows, 1);
    const mk_output to = {answer.get(), (size_t)k, nullptr}, to_gate = {open.get(), 1, nullptr};
    mk_products(&shared->close, &to, 1, opened.get(), (size_t)shared->close.k, rows);
    if (shared_after) (*shared_after)(answer.get(), nullptr, answer.get(), rows, k);
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

Sublayer::Run Mixture::ready(Taken from, const Remembered&, const Arrays&, Arrays&) const {
  const auto job = once(job_, from, [&] {
    const MaybeRun norm = take(norm_, from);
    const mk_matrix router = take(router_, from);
    mk_routing by = by_;
    if (routing_.correction) by.correction = from.floats();
    if (routing_.shares) by.shares = from.floats();
    Job job{norm, router, by, ExpertsRun(experts_, from), {}, {}, {}, share, {}, reading_ ? reading_->second : 1, {}, {}, {}, fed_};
    if (shared_) job.shared.emplace(*shared_, from);
    if (gate_) job.gate = take(*gate_, from);
    job.after = take(after_, from);
    if (reading_) job.reading = reading_->first.take(from);
    job.answered = take(answered_, from), job.shared_norm = take(shared_norm_, from), job.shared_after = take(shared_after_, from);
    job.summing = summing;
    return job;
  });
  return [job](const float* x, const float* to, float* y, int rows) { job->run(x, to, y, rows); };
}

void define(nb::module_& m) {
  m.def("mixture", [](const MaybeNorm& norm, const Matrix& router, const Routing& routing, const std::vector<Matrix>& open, int act, float limit,
                     float slope, const Matrix& close, const MaybeFeeding& shared, const MaybeMatrix& gate, const MaybeNorm& after,
                     const std::optional<Reading>& reading, const MaybeNorm& answered, const MaybeNorm& shared_norm,
                     const MaybeNorm& shared_after, bool fed) {
    return Part{std::make_shared<Mixture>(norm, router, routing, Experts(open, act, limit, slope, close), shared, gate, after, reading, answered,
                                      shared_norm, shared_after, fed)};
  }, nb::arg("norm").none(), nb::arg("router"), nb::arg("routing"), nb::arg("open"), nb::arg("act"), nb::arg("limit"), nb::arg("slope"),
     nb::arg("close"), nb::arg("shared").none(), nb::arg("gate").none(), nb::arg("after").none(), nb::arg("reading").none() = nb::none(),
     nb::arg("answered").none() = nb::none(), nb::arg("shared_norm").none() = nb::none(), nb::arg("shared_after").none() = nb::none(),
     nb::arg("fed") = false);
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
