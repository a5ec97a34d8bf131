// How rows want their tokens drawn, and the keys of their noise.
#pragma once
#include <array>

#include "graph/node.h"
#include "sampling/draw.h"

namespace modelkit {
using Key = std::array<uint32_t, 2>;

class Draws {
 public:
  Draws(std::vector<uint64_t> seeds, const std::vector<float>& temperatures, const std::vector<int>& top_k, const std::vector<float>& top_p,
        const std::vector<float>& min_p, const std::vector<float>& typical_p);

  // Of each row, `columns` one behind the other; positions: of each row's first column.
  std::vector<Key> keys(const std::vector<uint32_t>& positions, int columns) const;
  void draw(const float* x, ptrdiff_t stride, const Key* keys, int32_t* y, int columns, int size) const {
    mk_draw(x, stride, wanted_.data(), reinterpret_cast<const uint32_t(*)[2]>(keys), y, (int)wanted_.size(), columns, size);
  }
  size_t rows() const { return wanted_.size(); }

 private:
  std::vector<uint64_t> seeds_;
  std::vector<mk_wanted> wanted_;
};
}  // namespace modelkit
