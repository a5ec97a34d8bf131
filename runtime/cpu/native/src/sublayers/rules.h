// What sublayers that fold are made of: convolutions, and the rules by which tokens enter a state and are answered.
#pragma once
#include <functional>
#include <memory>

#include "recurrent/scans.h"
#include "sublayers/sublayers.h"

namespace modelkit {
// filters [taps, channels]
struct Conv {
  Array filters;
  Maybe bias;

  Conv(const Array& filters, const Maybe& bias) : filters(filters), bias(bias) {
    want(filters.ndim() == 2 && filters.shape(0) >= 1 && filters.shape(0) <= MK_CONV_TAPS, "a convolution has 1 to 64 taps, and channels");
    want(!bias || bias->shape() == mx::Shape{filters.shape(1)}, "a convolution's bias has one number for each channel");
  }
  int taps() const { return filters.shape(0); }
  void add_to(Weights& weights) const {
    weights.add(filters);
    if (bias) weights.add(*bias);
  }
  // But for what passes it.
  mk_conv take(const Folding& of, Taken& from, const float* before, float* after) const {
    mk_conv job{};
    job.rows = of.rows, job.width = of.width, job.channels = filters.shape(1), job.taps = taps();
    job.filters = from.floats(), job.bias = bias ? from.floats() : nullptr;
    job.before = before, job.after = after, job.counts = of.counts.empty() ? nullptr : of.counts.data();
    return job;
  }
};

// The states of a step as inputs, and as outputs as they are behind it; and where they are asked for, the opening products, which
// have so many numbers each.
inline Folding folds(const States& given, const std::vector<mx::Shape>& shapes, const std::vector<int>& products, Making& made) {
  const auto& [states, asked, own] = given;
  want(states.size() == shapes.size() && (int)made.counts.size() == made.rows, "there must be all states, and a count for each row");
  Folding of{made.rows, made.width, made.starts, {}, (int)made.in.size(), (int)made.shapes.size(), own, -1};
  for (int count : made.counts) {
    want(count >= 0 && count <= made.width, "a row brings no more tokens than the step is wide");
    if (count < made.width) of.counts = made.counts;
  }
  for (size_t i = 0; i < states.size(); i++) {
    want_float(states[i], "a state");
    want(states[i].shape() == shapes[i], "a state must have its layer's shape");
    made.in.push_back(states[i]), made.shapes.push_back(shapes[i]), made.types.push_back(mx::float32);
  }
  if (!asked) return of;
  of.products = (int)made.shapes.size();
  for (int size : products) made.shapes.push_back({made.rows, made.width, size}), made.types.push_back(mx::float32);
  return of;
}

// What a rule is given in one step: tokens behind the convolution, its gates, and where the state is and goes.
struct Brought {
  mk_tokens mixed;
  const mk_tokens* gates;
  const float* before;
  float *y, *after;
  const int *starts, *counts;
  int rows, width;
};

class Rule {
 public:
  using Run = std::function<void(const Brought&)>;

  Rule(int channels, int answers, std::vector<int> gates, mx::Shape state, bool leads = false, bool silu = true)
      : channels(channels), answers(answers), gates(std::move(gates)), state(std::move(state)), leads(leads), silu(silu) {}
  virtual ~Rule() = default;
  virtual void add_to(Weights& weights) const = 0;
  virtual Run take(Taken& from) const = 0;

  const int channels, answers;    // of what it mixes, and of what it gives
  const std::vector<int> gates;   // how many channels each gate has
  const mx::Shape state;          // of one row
  const bool leads;               // where one matrix opens, what is mixed comes before the answer's gate
  const bool silu;                // what it mixes passes that behind the convolution
};
}  // namespace modelkit
