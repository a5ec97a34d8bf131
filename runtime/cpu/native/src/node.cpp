#include "node.h"

#include <cstring>

namespace modelkit {
namespace {
// The dimensions from `axis` on of what `from` sees, written one element behind the other.
char* gather(const char* from, char* to, const mx::Shape& shape, const mx::Strides& strides, size_t axis, size_t size) {
  if (axis == shape.size()) {
    std::memcpy(to, from, size);
    return to + size;
  }
  if (axis + 1 == shape.size() && strides[axis] == 1) {
    std::memcpy(to, from, size * shape[axis]);
    return to + size * shape[axis];
  }
  for (int i = 0; i < shape[axis]; i++) to = gather(from + i * strides[axis] * (int64_t)size, to, shape, strides, axis + 1, size);
  return to;
}
}  // namespace

Array dense(const Array& x, mx::Stream stream) {
  if (x.flags().row_contiguous) return x;
  Array copy(x.shape(), x.dtype(), nullptr, {});
  allocate(copy);
  auto& encoder = mx::cpu::get_command_encoder(stream);
  encoder.dispatch([from = x.data<char>(), to = copy.data<char>(), shape = x.shape(), strides = x.strides(), size = x.itemsize()] {
    gather(from, to, shape, strides, 0, size);
  });
  encoder.add_temporary(copy);
  return copy;
}
}  // namespace modelkit
