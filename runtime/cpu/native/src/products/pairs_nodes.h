// What adapters add behind one matrix, and which adapters the rows of a step have, as Python hands them over.
#pragma once
#include "graph/node.h"
#include "products/pairs.h"

namespace modelkit {
// Arrays that are there already, and lie as kernels read them: adapters are no inputs of nodes.
class Pairs {
 public:
  using Maybe = std::optional<Array>;
  Pairs(int width, int outputs, const Maybe& down, const Maybe& up, const Maybe& factor, const Maybe& bias, const Maybe& own,
        std::vector<int> places);
  Pairs(const Pairs&) = delete;
  const mk_pairs& get() const { return by_; }

 private:
  const void* take(const Array& x, const mx::Shape& shape, const char* what);

  Arrays held_;
  std::vector<int> places_;
  mk_pairs by_{};
};

// rows: of each the adapters, each with its scale.
class Members {
 public:
  explicit Members(const std::vector<std::vector<std::pair<int, float>>>& rows);
  Members(const Members&) = delete;
  const mk_members& get() const { return by_; }
  int rows() const { return by_.rows; }

 private:
  std::vector<std::vector<mk_member>> members_;
  std::vector<std::vector<int>> rows_;
  std::vector<mk_kin> kin_;
  mk_members by_{};
};
}  // namespace modelkit
