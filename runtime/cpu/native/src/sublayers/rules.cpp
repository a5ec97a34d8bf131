#include "sublayers/rules.h"

namespace modelkit {
namespace {
// gates: decays, strengths.
class Delta : public Rule {
 public:
  Delta(const Array& rates, const Array& bias, int key_heads, int heads, int key, int value, float most)
      : Rule(2 * key_heads * key + heads * value, heads * value, {(int)bias.size(), heads}, {heads, key, value}), rates_(rates), bias_(bias) {
    want(key_heads > 0 && heads > 0 && heads % key_heads == 0, "the heads must be a multiple of the key heads");
    want(key > 0 && key <= MK_DELTA_KEYS && value > 0, "a key may have up to 2048 channels");
    want((int)rates.size() == heads && ((int)bias.size() == heads || (int)bias.size() == heads * key),
         "there is a rate for each head, and a bias for each head or each of its key's channels");
    job_.key_heads = key_heads, job_.heads = heads, job_.key_dim = key, job_.value_dim = value;
    job_.by_channel = (int)bias.size() != heads, job_.most = most;
  }
  void add_to(Weights& weights) const override { weights.add(rates_), weights.add(bias_); }
  Run take(Taken& from) const override {
    mk_delta job = job_;
    job.rates = from.floats(), job.bias = from.floats();
    return [job](const Brought& step) mutable {
      job.mixed = step.mixed, job.decay = step.gates[0], job.strength = step.gates[1];
      job.before = step.before, job.y = step.y, job.after = step.after, job.counts = step.counts;
      job.rows = step.rows, job.width = step.width;
      mk_delta_rows(job);
    };
  }

 private:
  Array rates_, bias_;
  mk_delta job_{};
};

// gates: step sizes.
class Ssd : public Rule {
 public:
  Ssd(const Array& rates, const Array& bias, const Array& skip, int heads, int size, int groups, int states, std::pair<float, float> bounds)
      : Rule(heads * size + 2 * groups * states, heads * size, {heads}, {heads, states, size}), rates_(rates), bias_(bias), skip_(skip) {
    want(groups > 0 && heads > 0 && heads % groups == 0 && size > 0 && states > 0, "the heads must be a multiple of the groups");
    for (const Array* each : {&rates, &bias, &skip}) want((int)each->size() == heads, "there is a rate, a bias and a skip for each head");
    job_.heads = heads, job_.size = size, job_.groups = groups, job_.states = states;
    job_.low = bounds.first, job_.high = bounds.second;
  }
  void add_to(Weights& weights) const override { weights.add(rates_), weights.add(bias_), weights.add(skip_); }
  Run take(Taken& from) const override {
    mk_ssd job = job_;
    job.rates = from.floats(), job.bias = from.floats(), job.skip = from.floats();
    return [job](const Brought& step) mutable {
      job.mixed = step.mixed, job.steps = step.gates[0];
      job.before = step.before, job.y = step.y, job.after = step.after, job.counts = step.counts;
      job.rows = step.rows, job.width = step.width;
      mk_ssd_rows(job);
    };
  }

 private:
  Array rates_, bias_, skip_;
  mk_ssd job_{};
};

// Mamba's: what is mixed gives its own step sizes, inputs and outputs, the first of them by way of few numbers.
class Selective : public Rule {
 public:
  Selective(const Matrix& open, const std::vector<MaybeNorm>& norms, const Matrix& widen, const Array& rates, const Array& skip)
      : Rule((int)skip.size(), (int)skip.size(), {}, {rates.shape(0), (int)skip.size()}, true), open_(open), widen_(widen), norms_(norms),
        rates_(rates), skip_(skip) {
    want(rates.ndim() == 2 && rates.shape(1) == channels && rates.shape(0) > 0 && rates.shape(0) <= MK_SELECTIVE_STATES,
         "there is a rate for each of up to 256 states of each channel");
    want_matrix(open, channels, "what gives steps, inputs and outputs is one matrix, as wide as the channels");
    want_matrix(widen, open.outputs() - 2 * rates.shape(0), "what widens steps is one matrix, as wide as inputs and outputs leave");
    want(widen.outputs() == channels, "there is a step size for each channel");
    want(norms.size() == 3, "there is a norm, or none, of steps, inputs and outputs each");
    job_.channels = channels, job_.states = rates.shape(0);
  }
  void add_to(Weights& weights) const override {
    weights.add(open_), weights.add(widen_);
    for (size_t i = 0; i < norms_.size(); i++) weights.add(norms_[i], i ? job_.states : widen_.width());
    weights.add(rates_), weights.add(skip_);
  }
  Run take(Taken& from) const override {
    mk_selective job = job_;
    const mk_matrix open = modelkit::take(open_, from), widen = modelkit::take(widen_, from);
    std::vector<MaybeRun> norms;
    for (const MaybeNorm& norm : norms_) norms.push_back(modelkit::take(norm, from));
    job.rates = from.floats(), job.skip = from.floats();
    return [job, open, widen, norms](const Brought& step) mutable {
      const int rows = step.rows * step.width;
      const Scratch made = scratch(rows, open.n), steps = scratch(rows, widen.n);
      const mk_output to = {made.get(), (size_t)open.n, nullptr}, wide = {steps.get(), (size_t)widen.n, nullptr};
      mk_products(&open, &to, 1, step.mixed.at, (size_t)open.k, rows);
      std::vector<Scratch> room;
      mk_tokens parts[3];
      for (int i = 0, at = 0; i < 3; i++) {
        const int size = i ? job.states : (int)widen.k;
        const float* raw = made.get() + at;
        at += size;
        parts[i] = {raw, (ptrdiff_t)open.n * step.width, (ptrdiff_t)open.n};
        if (!norms[i]) continue;
        room.push_back(scratch(rows, size));
        norms[i]->from(raw, open.n, nullptr, room.back().get(), rows, size);
        parts[i] = {room.back().get(), (ptrdiff_t)size * step.width, size};
      }
      mk_products(&widen, &wide, 1, parts[0].at, (size_t)parts[0].token, rows);
      job.x = step.mixed, job.steps = {steps.get(), (ptrdiff_t)widen.n * step.width, (ptrdiff_t)widen.n};
      job.inputs = parts[1], job.outputs = parts[2];
      job.before = step.before, job.y = step.y, job.after = step.after, job.counts = step.counts;
      job.rows = step.rows, job.width = step.width;
      mk_selective_rows(job);
    };
  }

 private:
  Matrix open_, widen_;
  std::vector<MaybeNorm> norms_;
  Array rates_, skip_;
  mk_selective job_{};
};

// The real-gated linear recurrent unit, whose gates are made of what it mixes.
class Lru : public Rule {
 public:
  Lru(const Array& inputs, const Array& input_bias, const Array& keeps, const Array& keep_bias, const Array& rates)
      : Rule((int)rates.size(), (int)rates.size(), {}, {(int)rates.size()}, false, false), arrays_{inputs, input_bias, keeps, keep_bias, rates} {
    want(inputs.ndim() == 3 && inputs.shape(1) == inputs.shape(2) && keeps.shape() == inputs.shape(), "gates are a square matrix for each head");
    job_.heads = inputs.shape(0), job_.block = inputs.shape(1);
    want(job_.heads * job_.block == channels, "there is a rate for each channel of each head");
    want((int)input_bias.size() == channels && (int)keep_bias.size() == channels, "there is a bias for each channel of each gate");
  }
  void add_to(Weights& weights) const override {
    for (const Array& each : arrays_) weights.add(each);
  }
  Run take(Taken& from) const override {
    mk_lru job = job_;
    job.inputs = from.floats(), job.input_bias = from.floats(), job.keeps = from.floats(), job.keep_bias = from.floats();
    job.rates = from.floats();
    return [job](const Brought& step) mutable {
      std::vector<int> positions((size_t)step.rows * step.width);
      for (size_t i = 0; i < positions.size(); i++) positions[i] = step.starts[i / step.width] + (int)(i % step.width);
      job.x = step.mixed, job.positions = positions.data();
      job.before = step.before, job.y = step.y, job.after = step.after, job.counts = step.counts;
      job.rows = step.rows, job.width = step.width;
      mk_lru_rows(job);
    };
  }

 private:
  Arrays arrays_;
  mk_lru job_{};
};

void define(nb::module_& m) {
  nb::class_<Held<Rule>>(m, "Rule");
  m.def("DeltaRule", &held<Rule, Delta, Array, Array, int, int, int, int, float>, nb::arg("rates"), nb::arg("bias"), nb::arg("key_heads"),
        nb::arg("heads"), nb::arg("key_dim"), nb::arg("value_dim"), nb::arg("most"));
  m.def("SsdRule", &held<Rule, Ssd, Array, Array, Array, int, int, int, int, std::pair<float, float>>, nb::arg("rates"), nb::arg("bias"),
        nb::arg("skip"), nb::arg("heads"), nb::arg("size"), nb::arg("groups"), nb::arg("states"), nb::arg("bounds"));
  m.def("SelectiveRule", &held<Rule, Selective, Matrix, std::vector<MaybeNorm>, Matrix, Array, Array>, nb::arg("open"), nb::arg("norms"),
        nb::arg("widen"), nb::arg("rates"), nb::arg("skip"));
  m.def("LruRule", &held<Rule, Lru, Array, Array, Array, Array, Array>, nb::arg("inputs"), nb::arg("input_bias"), nb::arg("keeps"),
        nb::arg("keep_bias"), nb::arg("rates"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
