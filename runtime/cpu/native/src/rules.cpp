#include "rules.h"

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

void define(nb::module_& m) {
  nb::class_<Held<Rule>>(m, "Rule");
  m.def("DeltaRule", &held<Rule, Delta, Array, Array, int, int, int, int, float>, nb::arg("rates"), nb::arg("bias"), nb::arg("key_heads"),
        nb::arg("heads"), nb::arg("key_dim"), nb::arg("value_dim"), nb::arg("most"));
  m.def("SsdRule", &held<Rule, Ssd, Array, Array, Array, int, int, int, int, std::pair<float, float>>, nb::arg("rates"), nb::arg("bias"),
        nb::arg("skip"), nb::arg("heads"), nb::arg("size"), nb::arg("groups"), nb::arg("states"), nb::arg("bounds"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
