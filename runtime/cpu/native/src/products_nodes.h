// A packed matrix as Python hands it over: its arrays, and what the kernels must know of them.
#pragma once
#include "node.h"
#include "products.h"

namespace modelkit {
class Matrix {
 public:
  Matrix(const Array& codes, const Array& scales, const std::optional<Array>& biases, const std::optional<Array>& added,
         int group, int bits, const std::string& mode);

  int outputs() const { return meta_.n; }
  int width() const { return meta_.k; }

  // The arrays go along as inputs of a node, one matrix behind the other, and come back evaluated.
  void add_inputs(Arrays& inputs) const { inputs.insert(inputs.end(), arrays_.begin(), arrays_.end()); }
  mk_matrix take(const Arrays& inputs, size_t& at, mx::Stream stream) const;

 private:
  Arrays arrays_;
  mk_matrix meta_{};
};
}  // namespace modelkit
