// The sublayer that feeds forward: a norm, products of one x, an activation or gate, the product that closes, a norm
// behind it, and what all that is added to.
#include "sublayers/feeding.h"

namespace modelkit {
namespace {
// x + after(inner(norm(x) open) close)
class FeedForward : public Sublayer {
 public:
  FeedForward(const MaybeNorm& norm, const Feeding& by, const MaybeNorm& after) : norm_(norm), by_(by), after_(after) {
    want_closing(by.close, by.close.width(), after);
    weights.add(norm, width()), by.add_to(weights), weights.add(after, width());
  }
  int width() const override { return by_.close.outputs(); }

  Run ready(Taken from, const Remembered&, const Arrays&, Arrays&) const override {
    const auto job = once(job_, from, [&] {
      const MaybeRun norm = take(norm_, from);
      FeedingRun by(by_, from);
      Closing close{by.close, {}, share, summing};
      close.after = take(after_, from);
      return Job{norm, std::move(by), close};
    });
    return [job](const float* x, const float* to, float* y, int rows) { job->run(x, to, y, rows); };
  }

 private:
  struct Job {
    MaybeRun norm;
    FeedingRun by;
    Closing close;

    void run(const float* x, const float* to, float* y, int rows) const {
      const int k = by.open[0].k;
      const Scratch normed = norm ? scratch(rows, k) : nullptr;
      if (norm) (*norm)(x, nullptr, normed.get(), rows, k);
      const Scratch done = by.opened(norm ? normed.get() : x, rows);
      close.run(done.get(), to, y, rows);
    }
  };

  mutable std::shared_ptr<const Job> job_;
  MaybeNorm norm_;
  Feeding by_;
  MaybeNorm after_;
};

void define(nb::module_& m) {
  nb::class_<Feeding>(m, "Feeding")
      .def(nb::init<const std::vector<Matrix>&, bool, int, const Matrix&, float, const std::optional<Bend>&, std::optional<float>, const Low&>(), nb::arg("open"), nb::arg("halves"), nb::arg("act"),
           nb::arg("close"), nb::arg("scale") = 1.0f, nb::arg("bend") = nb::none(),
           nb::arg("cut") = nb::none(), nb::arg("low") = Low{});
  m.def("feed_forward", [](const MaybeNorm& norm, const Feeding& by, const MaybeNorm& after) {
    return Part{std::make_shared<FeedForward>(norm, by, after)};
  }, nb::arg("norm").none(), nb::arg("feeding"), nb::arg("after").none());
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
