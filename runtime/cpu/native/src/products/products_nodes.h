// A packed matrix as Python hands it over: its arrays, and what the kernels must know of them.
#pragma once
#include <memory>

#include "graph/node.h"
#include "products/products.h"

namespace modelkit {
class Pairs;

// One matrix [n, k], or a stack of them [..., n, k]. Without scales its codes are floats, or rows of GGUF's blocks of the type
// that `mode` says.
class Matrix {
 public:
  using Maybe = std::optional<Array>;
  Matrix(const Array& codes, const Maybe& scales, const Maybe& biases, const Maybe& added, int group, int bits,
         const std::string& mode);

  int outputs() const { return meta_.n; }
  int width() const { return meta_.k; }
  int count() const { return count_; }
  // The same with what adapters add to its products.
  Matrix with(std::shared_ptr<const Pairs> pairs) const;

  // The arrays go along as inputs of a node, one matrix behind the other, and come back evaluated.
  void add_inputs(Arrays& inputs) const { inputs.insert(inputs.end(), arrays_.begin(), arrays_.end()); }
  mk_matrix take(const Arrays& inputs, size_t& at, mx::Stream stream) const;

 private:
  int64_t blocks(const Array& rows, const std::string& type);
  int64_t packed(const Array& codes, const Array& scales, const Maybe& biases, int group, int bits, const std::string& mode);

  Arrays arrays_;
  mk_matrix meta_{};
  int count_;
  std::shared_ptr<const Pairs> pairs_;
};

void check(bool good, const std::string& what);
int type_of(const Array& floats, const char* what);
}  // namespace modelkit
