// What feeds forward, as Python hands it over: for the sublayer that does so, and for experts that always answer.
#pragma once
#include "rows/activations.h"
#include "sublayers/sublayers.h"

namespace modelkit {
// What xIELU is computed by: rise, fall, beta, eps.
using Bend = std::tuple<float, float, float, float>;

// What lies between a feed-forward block's first products and its last one.
enum class Inner { Act, Halves, Pair };  // act(u); act(g) * u from [g, u] side by side; the same from two matrices

// open: [gate, up], or one matrix: of both, halves, or with nothing to gate. scale: what is activated is multiplied by it first.
// cut: so many deviations above its mean begins what is activated; what lies below is 0.
// bend: takes the place of the activation; only where there is nothing to gate.
// low: what is added to products of the matrices in `open`.
struct Feeding {
  std::vector<Matrix> open;
  Inner inner;
  mk_act act;
  Matrix close;
  float scale;
  std::optional<mk_bend> bend;
  std::optional<float> cut;
  Low low;

  Feeding(const std::vector<Matrix>& open, bool halves, int act, const Matrix& close, float scale, const std::optional<Bend>& by,
          std::optional<float> cut, const Low& low)
      : open(open), act((mk_act)act), close(close), scale(scale), cut(cut), low(low) {
    want_low(low, open);
    if (by) bend = mk_bend{std::get<0>(*by), std::get<1>(*by), std::get<2>(*by), std::get<3>(*by)};
    want(!bend || (open.size() == 1 && !halves && bend->eps <= 0), "xIELU gates nothing, and its eps is at most 0");
    want(act >= 0 && act < MK_ACTS, "no such activation");
    want(open.size() == 1 || (open.size() == 2 && !halves && open[0].outputs() == open[1].outputs()),
         "a feed-forward block opens with one matrix, or with two of a size");
    want(!halves || open[0].outputs() % 2 == 0, "halves must be equal");
    inner = open.size() == 2 ? Inner::Pair : halves ? Inner::Halves : Inner::Act;
    want_matrix(close, halves ? open[0].outputs() / 2 : open[0].outputs(), "the closing matrix must be a single one, as wide as what it multiplies");
    for (const Matrix& matrix : open) want_matrix(matrix, close.outputs(), "a matrix must be a single one, as wide as x");
  }
  void add_to(Weights& weights) const {
    for (const Matrix& matrix : open) weights.add(matrix);
    modelkit::add_to(weights, low);
    weights.add(close);
  }
};

// Its matrices as a job has them.
struct FeedingRun {
  std::vector<mk_matrix> open;
  LowRuns low;
  mk_matrix close;
  Inner inner;
  mk_act act;
  float scale;
  std::optional<mk_bend> bend;
  std::optional<float> cut;

  FeedingRun(const Feeding& by, Taken& from)
      : open(take(by.open, from)), low(take(by.low, from)), close(take(by.close, from)), inner(by.inner), act(by.act), scale(by.scale), bend(by.bend),
        cut(by.cut) {}

  // What the closing matrix multiplies.
  Scratch opened(const float* x, int rows) const {
    const int n = open[0].n, k = open[0].k;
    const struct mk_gate gate = {act, 0, 0};
    Scratch first = scratch(rows, n);
    if (inner == Inner::Pair && scale == 1 && !cut && low.empty()) {
      mk_gated_products(open.data(), gate, first.get(), x, (size_t)k, rows);
      return first;
    }
    const Scratch up = inner == Inner::Pair ? scratch(rows, n) : nullptr;
    const mk_output to[] = {{first.get(), (size_t)n, nullptr}, {up.get(), (size_t)n, nullptr}};
    mk_products(open.data(), to, (int)open.size(), x, (size_t)k, rows);
    add_low(low, x, to, rows);
    if (scale != 1) // with what it gates, where these are halves
      for (int row = 0; row < rows; row++)
        for (int i = 0; i < (inner == Inner::Halves ? n / 2 : n); i++) first.get()[(size_t)row * n + i] *= scale;
    if (cut) mk_cut_rows(first.get(), n, first.get(), n, rows, inner == Inner::Halves ? n / 2 : n, *cut);
    if (inner == Inner::Pair) {
      mk_gate_rows(gate, first.get(), n, up.get(), n, first.get(), rows, n);
      return first;
    }
    if (inner == Inner::Act) {
      if (bend) mk_bend_rows(*bend, first.get(), n, first.get(), rows, n);
      else mk_act_rows(act, first.get(), n, first.get(), rows, n);
      return first;
    }
    Scratch half = scratch(rows, n / 2);
    mk_gate_rows(gate, first.get(), n, first.get() + n / 2, n, half.get(), rows, n / 2);
    return half;
  }
};
}  // namespace modelkit
