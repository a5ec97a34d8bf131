// The ids before a step, and what they take off logits, of several rows.
#pragma once
#include <climits>

#include "graph/node.h"
#include "sampling/penalties.h"

namespace modelkit {
class Penalties {
 public:
  // windows: -1 for all. pasts: of each row the last ids before the step, as many as its window has, or all there are.
  Penalties(std::vector<std::vector<int32_t>> pasts, const std::vector<int64_t>& windows, const std::vector<float>& repeat,
            const std::vector<float>& presence, const std::vector<float>& frequency)
      : pasts_(std::move(pasts)) {
    const size_t count = pasts_.size();
    want(windows.size() == count && repeat.size() == count && presence.size() == count && frequency.size() == count,
         "there is one number of each kind per row");
    for (size_t i = 0; i < count; i++) {
      want(windows[i] >= -1 && repeat[i] > 0, "a window has ids, and a repeat penalty is above 0");
      by_.push_back({repeat[i], presence[i], frequency[i], windows[i] < 0 ? LLONG_MAX : windows[i], pasts_[i].data(), (int64_t)pasts_[i].size()});
    }
  }
  Penalties(const Penalties&) = delete;  // rows point to their ids

  size_t rows() const { return by_.size(); }
  // inputs [rows, columns]; logits [rows, columns, size], in place.
  void apply(const int32_t* inputs, float* logits, int columns, int size) const {
    for (size_t r = 0; r < by_.size(); r++)
      mk_penalise(&by_[r], inputs + r * columns, 1, logits + r * columns * size, columns, size);
  }
  // drawn [rows, steps], of which `count` stand behind what is past; logits [rows, size] of what comes next, in place.
  void apply_behind(const int32_t* drawn, int steps, int count, float* logits, int size) const {
    for (size_t r = 0; r < by_.size(); r++) mk_penalise(&by_[r], drawn + r * steps, count, logits + r * size, 1, size);
  }

 private:
  std::vector<std::vector<int32_t>> pasts_;
  std::vector<mk_penalty> by_;
};
}  // namespace modelkit
