// Layers over several residual streams of which one is computed on (AltUp, arXiv 2301.13310; LAuReL, arXiv 2411.07501). Inside
// such a layer a copy of that one lies behind the streams: sublayers add to the copy, and the streams are corrected by it.
#include "rows/activations.h"
#include "rows/streams.h"
#include "sublayers/sublayers.h"

namespace modelkit {
namespace {
// What streams are made of each other by: tanh(norm(x) router) shares, where x is one stream of `width` numbers.
class Route {
 public:
  Route(const Norm& norm, const Matrix& router, const Matrix& shares) : norm_(norm), router_(router), shares_(shares) {
    want_matrix(router, router.width(), "a router is a single matrix");
    want_matrix(shares, router.outputs(), "the matrix of shares must be a single one, as wide as there are scores");
    want(router.outputs() > 0 && router.outputs() <= MK_MOST_STREAMS, "streams are 64 at most");
  }
  int streams() const { return router_.outputs(); }
  int width() const { return router_.width(); }
  int outputs() const { return shares_.outputs(); }
  void add_to(Weights& weights) const { weights.add(norm_, width()), weights.add(router_), weights.add(shares_); }

  struct Run {
    Norm::Run norm;
    mk_matrix router, shares;

    // x's rows `stride` floats apart.
    Scratch operator()(const float* x, ptrdiff_t stride, int rows) const {
      const Scratch normed = scratch(rows, router.k), scores = scratch(rows, router.n);
      Scratch made = scratch(rows, shares.n);
      norm.from(x, stride, nullptr, normed.get(), rows, router.k);
      const mk_output asked = {scores.get(), (size_t)router.n, nullptr}, answered = {made.get(), (size_t)shares.n, nullptr};
      mk_products(&router, &asked, 1, normed.get(), (size_t)router.k, rows);
      mk_softcap_rows(1, scores.get(), router.n, scores.get(), rows, router.n);  // tanh, as the operation of that name has it
      mk_products(&shares, &answered, 1, scores.get(), (size_t)shares.k, rows);
      return made;
    }
  };
  Run take(Taken& from) const { return {norm_.take(from), modelkit::take(router_, from), modelkit::take(shares_, from)}; }

 private:
  Norm norm_;
  Matrix router_, shares_;
};

// Each stream from all of them, and the copy.
class AltUpPredict : public Sublayer {
 public:
  AltUpPredict(const Route& by, int place) : by_(by), place_(place) {
    want(by.outputs() == by.streams() * by.streams(), "there is a share of each stream in each");
    want(place >= 0 && place < by.streams(), "no such stream");
    by.add_to(weights);
  }
  int width() const override { return by_.streams() * by_.width(); }
  int output_width() const override { return width() + by_.width(); }

  Run ready(Taken from, const Remembered&, const Arrays&, Arrays&) const override {
    const auto by = once(kept_, from, [&] { return by_.take(from); });
    return [by, place = place_](const float*, const float* to, float* y, int rows) {
      const int count = by->router.n, size = by->router.k, wide = count * size, wider = wide + size;
      const Scratch shares = (*by)(to + place * size, wide, rows);
      mk_mix_streams(to, wide, shares.get(), count * count, y, wider, rows, count, size);
      for (ptrdiff_t row = 0; row < rows; row++) std::copy_n(y + row * wider + place * size, size, y + row * wider + wide);
    };
  }

 private:
  Route by_;
  int place_;
  mutable std::shared_ptr<const Route::Run> kept_;
};

// Each stream by what became of the copy; which then is the corrected stream, times `scale`.
class AltUpCorrect : public Sublayer {
 public:
  AltUpCorrect(const Route& by, int place, const std::optional<Array>& scale) : by_(by), place_(place), scaled_(scale.has_value()) {
    want(by.outputs() == by.streams(), "there is a share for each stream");
    want(place >= 0 && place < by.streams(), "no such stream");
    by.add_to(weights);
    if (scale) want(scale->ndim() == 1 && scale->shape(0) == by.width(), "a scale is as wide as a stream"), weights.add(*scale);
  }
  int width() const override { return (by_.streams() + 1) * by_.width(); }

  Run ready(Taken from, const Remembered&, const Arrays&, Arrays&) const override {
    const auto by = once(kept_, from, [&] {
      Weighed weighed{by_.take(from), nullptr};
      if (scaled_) weighed.scale = from.floats();
      return weighed;
    });
    return [by, place = place_](const float*, const float* to, float* y, int rows) {
      const int count = by->route.router.n, size = by->route.router.k, wide = count * size, wider = wide + size;
      const Scratch shares = by->route(to + wide, wider, rows);
      mk_correct_streams(to, wider, to + wide, wider, shares.get(), count, y, wider, rows, count, size, place);
      for (ptrdiff_t row = 0; row < rows; row++) {
        const float* corrected = y + row * wider + place * size;
        float* copy = y + row * wider + wide;
        for (int i = 0; i < size; i++) copy[i] = by->scale ? corrected[i] * by->scale[i] : corrected[i];
      }
    };
  }

 private:
  struct Weighed {
    Route::Run route;
    const float* scale;
  };
  Route by_;
  int place_;
  bool scaled_;
  mutable std::shared_ptr<const Weighed> kept_;
};

// Around a sublayer of one stream.
class Around : public Sublayer {
 public:
  Around(const Part& inner, int streams) : inner_(inner.by), streams_(streams) {
    want(streams > 0 && streams <= MK_MOST_STREAMS && inner_->output_width() == inner_->width() && inner_->input_width() == inner_->width(),
         "a sublayer of a copy has a stream's width");
    weights = inner_->weights;
  }
  int width() const override { return (streams_ + 1) * inner_->width(); }
  bool remembers() const override { return inner_->remembers(); }
  Remembered remember(const Memory& memory, Making& made) const override { return inner_->remember(memory, made); }

 protected:
  // The last `size` numbers of each row of x, one behind the other.
  static Scratch copies(const float* x, int rows, int wider, int size) {
    Scratch made = scratch(rows, size);
    for (size_t row = 0; row < (size_t)rows; row++) std::copy_n(x + (row + 1) * wider - size, size, made.get() + row * size);
    return made;
  }

  std::shared_ptr<Sublayer> inner_;
  int streams_;
};

// Adds to the copy.
class AltUpActive : public Around {
 public:
  AltUpActive(const Part& inner, int streams) : Around(inner, streams) { beside = inner_->beside; }

  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const override {
    return [run = inner_->ready(from, of, in, out), size = inner_->width(), wider = width()](const float* x, const float* to, float* y, int rows) {
      const int at = wider - size;
      if (y != to) std::copy_n(to, (size_t)rows * wider, y);
      if (rows == 1) return run(x + at, y + at, y + at, 1);
      const Scratch sum = copies(y, rows, wider, size), read = x == to ? nullptr : copies(x, rows, wider, size);
      run(read ? read.get() : sum.get(), sum.get(), sum.get(), rows);
      for (size_t row = 0; row < (size_t)rows; row++) std::copy_n(sum.get() + row * size, size, y + row * wider + at);
    };
  }
};

// What it answers to the copy is added to all streams but the first; the copy is left behind.
class AltUpJoin : public Around {
 public:
  using Around::Around;
  int output_width() const override { return streams_ * inner_->width(); }

  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const override {
    return [run = inner_->ready(from, of, in, out), count = streams_, size = inner_->width()](const float*, const float* to, float* y, int rows) {
      const int wide = count * size, wider = wide + size;
      const Scratch copy = copies(to, rows, wider, size), answer = scratch(rows, size);
      std::fill_n(answer.get(), (size_t)rows * size, 0.0f);
      run(copy.get(), answer.get(), answer.get(), rows);
      mk_join_streams(to, wider, answer.get(), size, y, wide, rows, count, size);
    };
  }
};

// to + n + after((n open) close), where n is norm(x).
class Laurel : public Sublayer {
 public:
  Laurel(const Norm& norm, const Matrix& open, const Matrix& close, const MaybeNorm& after)
      : norm_(norm), open_(open), close_(close), after_(after) {
    want_matrix(open, close.outputs(), "a matrix must be a single one, as wide as x");
    want_closing(close, open.outputs(), after);
    weights.add(norm, width()), weights.add(open), weights.add(close), weights.add(after, width());
  }
  int width() const override { return close_.outputs(); }

  Run ready(Taken from, const Remembered&, const Arrays&, Arrays&) const override {
    const auto by = once(kept_, from, [&] {
      Weighed weighed{norm_.take(from), take(open_, from), {take(close_, from), {}}};
      weighed.close.after = take(after_, from);
      return weighed;
    });
    return [by](const float* x, const float* to, float* y, int rows) {
      const int width = by->open.k, low = by->open.n;
      const Scratch normed = scratch(rows, width), narrow = scratch(rows, low);
      by->norm(x, nullptr, normed.get(), rows, width);
      const mk_output into = {narrow.get(), (size_t)low, nullptr};
      mk_products(&by->open, &into, 1, normed.get(), (size_t)width, rows);
      by->close.run(narrow.get(), normed.get(), normed.get(), rows);
      for (size_t i = 0; i < (size_t)rows * width; i++) y[i] = to[i] + normed[i];
    };
  }

 private:
  struct Weighed {
    Norm::Run norm;
    mk_matrix open;
    Closing close;
  };
  Norm norm_;
  Matrix open_, close_;
  MaybeNorm after_;
  mutable std::shared_ptr<const Weighed> kept_;
};

void define(nb::module_& m) {
  m.def("altup_predict", [](const Norm& norm, const Matrix& router, const Matrix& shares, int place) {
    return Part{std::make_shared<AltUpPredict>(Route(norm, router, shares), place)};
  }, nb::arg("norm"), nb::arg("router"), nb::arg("shares"), nb::arg("place"));
  m.def("altup_correct", [](const Norm& norm, const Matrix& router, const Matrix& shares, int place, const std::optional<Array>& scale) {
    return Part{std::make_shared<AltUpCorrect>(Route(norm, router, shares), place, scale)};
  }, nb::arg("norm"), nb::arg("router"), nb::arg("shares"), nb::arg("place"), nb::arg("scale").none());
  m.def("altup_active", [](const Part& part, int streams) { return Part{std::make_shared<AltUpActive>(part, streams)}; }, nb::arg("sublayer"),
        nb::arg("streams"));
  m.def("altup_join", [](const Part& part, int streams) { return Part{std::make_shared<AltUpJoin>(part, streams)}; }, nb::arg("sublayer"),
        nb::arg("streams"));
  m.def("laurel", [](const Norm& norm, const Matrix& open, const Matrix& close, const MaybeNorm& after) {
    return Part{std::make_shared<Laurel>(norm, open, close, after)};
  }, nb::arg("norm"), nb::arg("open"), nb::arg("close"), nb::arg("after").none());
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
