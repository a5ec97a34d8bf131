// The rules by which tokens enter a recurrent layer's state and are answered: what a sublayer that folds is made of.
#pragma once
#include <functional>
#include <memory>

#include "scans.h"
#include "sublayers.h"

namespace modelkit {
// What a rule is given in one step: tokens behind the convolution, its gates, and where the state is and goes.
struct Brought {
  mk_tokens mixed;
  const mk_tokens* gates;
  const float* before;
  float *y, *after;
  const int* counts;
  int rows, width;
};

class Rule {
 public:
  using Run = std::function<void(const Brought&)>;

  Rule(int channels, int answers, std::vector<int> gates, mx::Shape state)
      : channels(channels), answers(answers), gates(std::move(gates)), state(std::move(state)) {}
  virtual ~Rule() = default;
  virtual void add_to(Weights& weights) const = 0;
  virtual Run take(Taken& from) const = 0;

  const int channels, answers;    // of what it mixes, and of what it gives
  const std::vector<int> gates;   // how many channels each gate has
  const mx::Shape state;          // of one row
};
}  // namespace modelkit
