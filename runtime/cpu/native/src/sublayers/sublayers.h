// What sublayers of a residual stream are made of, as Python hands it over and as their nodes have it: norms, matrices,
// the product that closes.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>

#include <variant>

#include <nanobind/stl/variant.h>

#include "attention/attending.h"
#include "products/products_nodes.h"
#include "ranks/ring.h"
#include "recurrent/folding.h"
#include "rows/norms.h"
#include "threads/scratch.h"

namespace modelkit {
// Weights as a node takes them when it is evaluated: one behind the other, from `at` on.
struct Taken {
  const Arrays& arrays;
  size_t at;
  mx::Stream stream;
  const mk_members* members = nullptr;  // which adapters the step's rows have
  bool settled = false;                 // every step with these members takes the same

  const float* floats() { return dense(arrays[at++], stream).data<float>(); }
};

// RMS norms have no bias. What they give is multiplied by `times`. Of heads that lie side by side each may have a weight of its
// own, [heads, width].
class Norm {
 public:
  Norm(bool centred, const std::optional<Array>& weight, const std::optional<Array>& bias, float eps, float times)
      : centred_(centred), has_weight_(weight.has_value()), eps_(eps), times_(times) {
    want(centred || !bias, "an RMS norm has no bias");
    for (const auto& part : {weight, bias}) {
      if (!part) continue;
      want_float(*part, "what a norm multiplies by and adds");
      want(part->ndim() == 1 || (part->ndim() == 2 && !bias), "what a norm multiplies by and adds must have one dimension");
      arrays_.push_back(*part);
    }
    if (weight && weight->ndim() == 2) parts_ = weight->shape(0);
  }

  bool centred() const { return centred_; }
  float times() const { return times_; }
  int parts() const { return parts_; }
  // heads: as many weights as there may be.
  void add_inputs(Arrays& inputs, int width, int heads) const {
    want(parts_ == 1 || parts_ == heads, "a norm has one weight, or one for each head");
    for (const Array& part : arrays_) {
      want(part.shape(-1) == width, "a norm must be as wide as its input");
      inputs.push_back(part);
    }
  }

  struct Run {
    const float *weight, *bias;
    float eps;
    bool centred;
    float times;
    int parts;  // weights, which rows take in turn

    // y = add + norm(x), all dense; y may be x. add: nullptr for none, and not for a centred norm, nor with several weights.
    void operator()(const float* x, const float* add, float* y, int rows, int width) const { from(x, width, add, y, rows, width); }
    // x's rows `stride` floats apart.
    void from(const float* x, ptrdiff_t stride, const float* add, float* y, int rows, int width) const {
      const float* shared = parts == 1 ? weight : nullptr;
      if (!centred) mk_rms_norm(x, stride, shared, add, width, y, rows, width, eps);
      else mk_layer_norm(x, stride, shared, bias, y, rows, width, eps);
      for (size_t row = 0; parts > 1 && row < (size_t)rows; row++)
        for (int i = 0; i < width; i++) y[row * width + i] *= weight[row % parts * width + i];
      if (times != 1)
        for (size_t i = 0; i < (size_t)rows * width; i++) y[i] *= times;
    }
  };
  Run take(Taken& from) const {
    const float* weight = has_weight_ ? from.floats() : nullptr;
    const float* bias = arrays_.size() > (size_t)has_weight_ ? from.floats() : nullptr;
    return {weight, bias, eps_, centred_, times_, parts_};
  }

 private:
  bool centred_, has_weight_;
  float eps_, times_;
  int parts_ = 1;
  Arrays arrays_;
};
using MaybeNorm = std::optional<Norm>;
using MaybeRun = std::optional<Norm::Run>;

inline MaybeRun take(const MaybeNorm& norm, Taken& from) { return norm ? MaybeRun(norm->take(from)) : std::nullopt; }
inline mk_matrix take(const Matrix& matrix, Taken& from) {
  mk_matrix w = matrix.take(from.arrays, from.at, from.stream);
  w.members = from.members;
  return w;
}
inline std::vector<mk_matrix> take(const std::vector<Matrix>& matrices, Taken& from) {
  std::vector<mk_matrix> w;
  w.reserve(matrices.size());
  for (const Matrix& matrix : matrices) w.push_back(take(matrix, from));
  return w;
}

// The weights of a sublayer. Those that are there and lie as kernels read them are no inputs of its nodes: MLX walks
// over every input in every evaluation. Others are: they have yet to be computed, or somebody differentiates by them.
class Weights {
 public:
  // heads: of a norm of heads, how many stand side by side.
  void add(const MaybeNorm& norm, int width, int heads = 1) {
    if (norm) norm->add_inputs(arrays_, width, heads);
  }
  void add(const Matrix& matrix) { matrix.add_inputs(arrays_); }
  void add(const Weights& others) { arrays_.insert(arrays_.end(), others.arrays_.begin(), others.arrays_.end()); }
  // Taken as floats.
  void add(const Array& array) {
    want_float(array, "what a sublayer computes by");
    arrays_.push_back(array);
  }

  // As inputs behind those that a node has; where the first is, -1 for none.
  int join(Arrays& inputs) const {
    settled_ = settled_ || std::all_of(arrays_.begin(), arrays_.end(), [](const Array& x) {
                 return x.is_available() && !x.is_tracer() && x.flags().row_contiguous;
               });
    if (settled_) return -1;
    inputs.insert(inputs.end(), arrays_.begin(), arrays_.end());
    return (int)(inputs.size() - arrays_.size());
  }
  Taken take(const Arrays& inputs, int at, mx::Stream stream, const mk_members* members = nullptr) const {
    return {at < 0 ? arrays_ : inputs, at < 0 ? 0 : (size_t)at, stream, members, at < 0};
  }

 private:
  Arrays arrays_;
  mutable bool settled_ = false;
};

// y = to + after(answers), where `after` is a norm or nothing; or to + answers * share. y may lie where `to` does.
inline void add_answers(const MaybeRun& after, float share, float* answers, const float* to, float* y, int rows, int width) {
  if (after) return (*after)(answers, to, y, rows, width);
  const size_t count = (size_t)rows * width;
  if (share != 1)
    for (size_t i = 0; i < count; i++) answers[i] *= share;
  for (size_t i = 0; i < count; i++) y[i] = to[i] + answers[i];
}

// Where several processes have a part each of a sublayer, their answers are summed before anything else; else nullptr.
using Summing = std::shared_ptr<const Sums>;

// What is added to products of x with a matrix: (x down) up. For each of several matrices, or empty.
using Low = std::vector<std::optional<std::pair<Matrix, Matrix>>>;
struct LowRun {
  mk_matrix down, up;

  void add(const float* x, const mk_output& to, int rows) const {
    const Scratch few = scratch(rows, down.n);
    const mk_output narrow = {few.get(), (size_t)down.n, nullptr}, added = {to.y, to.ld, to.y};
    mk_products(&down, &narrow, 1, x, (size_t)down.k, rows);
    mk_products(&up, &added, 1, few.get(), (size_t)down.n, rows);
  }
};
using LowRuns = std::vector<std::optional<LowRun>>;
inline LowRuns take(const Low& low, Taken& from) {
  LowRuns runs;
  for (const auto& each : low) {
    runs.emplace_back();
    if (!each) continue;
    const mk_matrix down = take(each->first, from);
    runs.back() = LowRun{down, take(each->second, from)};
  }
  return runs;
}
inline void add_low(const LowRuns& low, const float* x, const mk_output* to, int rows) {
  for (size_t i = 0; i < low.size(); i++)
    if (low[i]) low[i]->add(x, to[i], rows);
}

// The last product of a sublayer, and what it is added to.
struct Closing {
  mk_matrix w;
  MaybeRun after;
  float share = 1;
  Summing summing = nullptr;

  void run(const float* x, const float* to, float* y, int rows) const {
    const mk_output added = {y, (size_t)w.n, to};
    if (!after && share == 1 && !summing) return mk_products(&w, &added, 1, x, (size_t)w.k, rows);
    const Scratch raw = scratch(rows, w.n);
    const mk_output aside = {raw.get(), (size_t)w.n, nullptr};
    mk_products(&w, &aside, 1, x, (size_t)w.k, rows);
    if (summing) summing->sum(raw.get(), raw.get(), (size_t)rows * w.n);
    add_answers(after, share, raw.get(), to, y, rows, w.n);
  }
};

inline void want_matrix(const Matrix& matrix, int width, const char* what) {
  want(matrix.count() == 1 && matrix.width() == width, what);
}

inline void want_low(const Low& low, const std::vector<Matrix>& open) {
  want(low.empty() || low.size() == open.size(), "a part of low rank is there, or none, for each matrix");
  for (size_t i = 0; i < low.size(); i++) {
    if (!low[i]) continue;
    want_matrix(low[i]->first, open[i].width(), "a part of low rank reads what its matrix does");
    want_matrix(low[i]->second, low[i]->first.outputs(), "a part of low rank is two matrices, one behind the other");
    want(low[i]->second.outputs() == open[i].outputs(), "a part of low rank gives what its matrix does");
  }
}
inline void add_to(Weights& weights, const Low& low) {
  for (const auto& each : low)
    if (each) weights.add(each->first), weights.add(each->second);
}

inline void want_closing(const Matrix& matrix, int width, const MaybeNorm& after) {
  want_matrix(matrix, width, "the closing matrix must be a single one, as wide as what it multiplies");
  want(!after || (!after->centred() && after->times() == 1), "a norm behind a sublayer must be an RMS norm");
}

// What a sublayer has of its layer's memory in a step, as Python hands it over.
// One that attends: table of turns, factors of queries [1 or rows, tokens], lanes, the position in slot 0 of each row, and
// whether the step's tokens go beside the lanes.
using Lanes = std::tuple<Maybe, Maybe, Arrays, Ints, bool>;
// One that attends to what another has written in this step: table and factors, and which of the node's memories that is; or
// where an earlier node has written it, lanes, what lies beside them, and positions in slot 0.
using Seen = std::tuple<Maybe, Maybe, int>;
using Elsewhere = std::tuple<Maybe, Maybe, Arrays, Arrays, Ints>;
// One that folds: states before the step, whether its opening products are asked for, too, and whether the states may be
// written into.
using States = std::tuple<Arrays, bool, bool>;
// What a step brings for a sublayer: [rows, tokens, numbers of all such sublayers].
using Given = std::tuple<Array>;
using Memory = std::variant<Lanes, Seen, Elsewhere, States, Given>;

// The same as its node has it; of what was brought, which input that is.
using Remembered = std::variant<std::monostate, Attending, Folding, int>;

// A node in the making.
struct Making {
  int rows, width;
  const Ints &starts, &counts;
  int first;
  Arrays& in;
  std::vector<mx::Shape>& shapes;  // of what it gives
  std::vector<mx::Dtype>& types;
  std::vector<const Remembered*> before = {};  // of the sublayers before this one that remember
};

// What a step brings for sublayers, [rows, tokens, `numbers` or more]: which of the node's inputs it is.
inline int given_of(const Memory& memory, Making& made, int numbers) {
  want(std::holds_alternative<Given>(memory), "one that takes what a step brings must have that");
  const Array& own = std::get<0>(std::get<Given>(memory));
  want_float(own, "what a step brings");
  want(own.ndim() == 3 && own.shape(0) == made.rows && own.shape(1) == made.width && own.shape(2) >= numbers,
       "what a step brings is [rows, tokens, numbers of all who take some]");
  const auto known = std::find_if(made.in.begin(), made.in.end(), [&](const Array& x) { return x.id() == own.id(); });
  const int at = (int)(known - made.in.begin());
  if (known == made.in.end()) made.in.push_back(own);
  return at;
}

// What adds to a residual stream: what all steps have in common.
class Sublayer {
 public:
  // y = to + sublayer(x), all dense; y may be `to`, and x where that is x, too. Where it gives another width it reads but `to`.
  using Run = std::function<void(const float* x, const float* to, float* y, int rows)>;

  virtual ~Sublayer() = default;
  virtual int width() const = 0;
  virtual int output_width() const { return width(); }  // how wide the stream is behind it
  virtual int input_width() const { return width(); }  // how wide what it reads is: more than the stream only inside another sublayer
  virtual bool remembers() const { return false; }
  // Adds inputs and outputs. For one that remembers.
  virtual Remembered remember(const Memory&, Making&) const { return {}; }
  // For eval_cpu, with the node's inputs and outputs.
  virtual Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const = 0;

  // What `make` makes of weights; once, for as long as steps take the same. Arrays are spread over memory, and a pass through
  // the weights has pushed them out of all caches.
  template <class T, class Make>
  std::shared_ptr<const T> once(std::shared_ptr<const T>& kept, const Taken& from, Make make) const {
    if (!from.settled) return std::make_shared<const T>(make());
    if (!kept || kept_for_ != from.members) kept = std::make_shared<const T>(make()), kept_for_ = from.members;
    return kept;
  }

  Weights weights;
  float share = 1;      // how much of its answer is added, where there is no norm behind it
  Summing summing;
  bool beside = false;  // it reads what the one before it read, and adds to what that gave

 private:
  mutable const mk_members* kept_for_ = nullptr;  // what is kept points there; others may lie there by now
};

// As Python holds it.
struct Part {
  std::shared_ptr<Sublayer> by;
};
}  // namespace modelkit
