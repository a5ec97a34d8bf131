#include "graph/node.h"
#include "rows/quantize.h"

namespace modelkit {
namespace {
class Quantize : public Node {
 public:
  Quantize(mx::Stream stream, int size, int bits) : Node(stream), size_(size), bits_(bits) {}
  const char* name() const override { return "ModelkitQuantize"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array x = dense(in[0], stream());
    for (auto& one : out) allocate(one);
    const mk_float type = x.dtype() == mx::float32 ? MK_F32 : x.dtype() == mx::float16 ? MK_F16 : MK_BF16;
    dispatch(stream(), [x = x.data<void>(), type, groups = x.size() / size_, size = size_, bits = bits_, codes = out[0].data<void>(),
                        scales = out[1].data<void>(), biases = out[2].data<void>()] {
      mk_quantize(x, type, groups, size, bits, codes, scales, biases);
    });
  }

 private:
  int size_, bits_;
};

std::tuple<Array, Array, Array> quantize(const Array& x, int size, int bits) {
  const auto type = x.dtype();
  if (type != mx::float32 && type != mx::float16 && type != mx::bfloat16) throw std::invalid_argument("x must be a float of 16 or 32 bits");
  if (size != 32 && size != 64 && size != 128) throw std::invalid_argument("groups must be of 32, 64 or 128");
  if (bits < 1 || bits > 8 || bits == 7) throw std::invalid_argument("codes must have 1, 2, 3, 4, 5, 6 or 8 bits");
  if (x.ndim() < 1 || x.shape(-1) % size) throw std::invalid_argument("rows of x must be whole groups");
  auto codes = x.shape(), scales = x.shape();
  codes.back() = x.shape(-1) / 32 * bits;
  scales.back() = x.shape(-1) / size;
  auto out = Array::make_arrays({codes, scales, scales}, {mx::uint32, type, type}, std::make_shared<Quantize>(processor(), size, bits), {x});
  return {out[0], out[1], out[2]};
}

void define(nb::module_& m) { m.def("quantize", &quantize, nb::arg("x"), nb::arg("group_size"), nb::arg("bits")); }

const Topic topic(define);
}  // namespace
}  // namespace modelkit
