// What is added to the logits of some ids, of several rows.
#pragma once
#include "graph/node.h"

namespace modelkit {
class Biases {
 public:
  // Of each row its ids, and one number for each of them.
  Biases(std::vector<std::vector<int32_t>> ids, std::vector<std::vector<float>> values) : ids_(std::move(ids)), values_(std::move(values)) {
    want(ids_.size() == values_.size(), "there are numbers for each row");
    for (size_t r = 0; r < rows(); r++) {
      want(ids_[r].size() == values_[r].size(), "there is a number for each id");
      for (int32_t id : ids_[r]) want(id >= 0, "ids are not below 0");
    }
  }

  size_t rows() const { return ids_.size(); }
  // logits [rows, columns, size], in place; ids that are none of them count for nothing.
  void apply(float* logits, int columns, int size) const {
    for (size_t r = 0; r < rows(); r++)
      for (int c = 0; c < columns; c++, logits += size)
        for (size_t i = 0; i < ids_[r].size(); i++)
          if (ids_[r][i] < size) logits[ids_[r][i]] += values_[r][i];
  }

 private:
  std::vector<std::vector<int32_t>> ids_;
  std::vector<std::vector<float>> values_;
};
}  // namespace modelkit
