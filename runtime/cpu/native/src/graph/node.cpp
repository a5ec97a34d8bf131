#include "graph/node.h"

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

// The distance from one row to the next where all are equally far apart, 0 where all are the same one, else -1.
ptrdiff_t apart(const Array& x) {
  const int last = (int)x.ndim() - 1;
  if (last < 0 || (x.strides(last) != 1 && x.shape(last) != 1)) return -1;
  ptrdiff_t step = x.shape(last), passed = 0;  // of the rows so far, from the inner dimension to the outer
  bool one = true;
  for (int axis = last - 1; axis >= 0; axis--) {
    if (x.shape(axis) == 1) continue;
    if (one) step = passed = x.strides(axis), one = false;
    else if (x.strides(axis) != passed) return -1;
    passed *= x.shape(axis);
  }
  return step;
}
}  // namespace

Rows rows_in_place(const Array& x, mx::Stream stream) {
  const ptrdiff_t stride = x.ndim() ? apart(x) : -1;
  if (stride > 0) return {x.data<float>(), stride};
  return {dense(x, stream).data<float>(), x.ndim() ? (ptrdiff_t)x.shape(-1) : 1};
}

ptrdiff_t word_in_front() {
  ptrdiff_t found = -1;
  for (size_t size : {1, 64, 4096, 1 << 20}) {
    auto data = mx::allocator::malloc(size);
    auto buffer = data.buffer();
    const ptrdiff_t apart = static_cast<char*>(buffer.raw_ptr()) - static_cast<char*>(buffer.ptr());
    if (apart < 0 || apart > MOST_IN_FRONT || (found >= 0 && apart != found)) return -1;
    found = apart;
  }
  return found;
}

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
