// A block of experts as Python hands it over, for the node of its own and for the sublayer that asks it.
#pragma once
#include "experts/experts.h"
#include "products/floats.h"
#include "sublayers/sublayers.h"

namespace modelkit {
// open: stacks of [gate, up], or one with nothing to gate.
struct Experts {
  std::vector<Matrix> open;
  mk_gate gate;
  Matrix close;

  Experts(const std::vector<Matrix>& open, int act, float limit, float slope, const Matrix& close)
      : open(open), gate{(mk_act)act, limit, slope}, close(close) {
    want(act >= 0 && act < MK_ACTS, "no such activation");
    want(open.size() == 1 || open.size() == 2, "experts open with one stack or two");
    want(limit >= 0 && (limit == 0 || open.size() == 2), "only a gate has a limit, and it is above 0");
    for (const Matrix& stack : open)
      want(stack.count() == close.count() && stack.width() == close.outputs() && stack.outputs() == close.width(),
           "the stacks of a block of experts must have as many matrices, of sizes that fit");
    want(close.count() > 0, "there must be experts");
  }
  void add_to(Weights& weights) const {
    for (const Matrix& stack : open) weights.add(stack);
    weights.add(close);
  }
};

// Its matrices as a job has them.
struct ExpertsRun {
  std::vector<mk_matrix> open;
  mk_matrix close;
  mk_gate gate;
  int count;

  ExpertsRun(const Experts& by, Taken& from) : open(take(by.open, from)), close(take(by.close, from)), gate(by.gate), count(by.close.count()) {}
  void operator()(const int* chosen, const float* weights, int each, const float* x, int rows, float* y) const {
    const mk_experts block = {open.data(), &close, (int)open.size(), count, gate};
    mk_answer(&block, chosen, weights, each, x, rows, y);
  }
};

inline void want_each(int each) {
  want(each > 0 && each <= MK_DEEP, "a row has one expert at least, and as many as are summed up in one chain at most");
}
}  // namespace modelkit
