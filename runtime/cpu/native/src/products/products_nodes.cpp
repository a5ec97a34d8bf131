#include "products/products_nodes.h"

#include "products/blocks.h"
#include "products/pairs_nodes.h"

namespace modelkit {
void check(bool good, const std::string& what) {
  if (!good) throw std::invalid_argument(what);
}

int type_of(const Array& floats, const char* what) {
  if (floats.dtype() == mx::float32) return MK_F32;
  if (floats.dtype() == mx::float16) return MK_F16;
  if (floats.dtype() == mx::bfloat16) return MK_BF16;
  throw std::invalid_argument(std::string(what) + " must be float32, float16 or bfloat16");
}

namespace {
int blocks_kind(const std::string& type) {
  static const std::pair<const char*, int> kinds[] = {{"q2_k", MK_Q2_K}, {"q3_k", MK_Q3_K},     {"q4_k", MK_Q4_K},    {"q5_k", MK_Q5_K},
                                                      {"q6_k", MK_Q6_K}, {"iq4_xs", MK_IQ4_XS}, {"iq4_nl", MK_IQ4_NL}};
  for (const auto& [name, kind] : kinds)
    if (type == name) return kind;
  throw std::invalid_argument("there are no products with blocks of that type");
}

int kind_of(const std::string& mode, int bits, int group) {
  if (mode == "affine") {
    check(bits > 0 && bits <= 8 && bits != 7, "affine codes have 1, 2, 3, 4, 5, 6 or 8 bits");
    check(group == 32 || group == 64 || group == 128, "affine groups have 32, 64 or 128 elements");
    return MK_AFFINE;
  }
  check((bits == 4 && mode == "mxfp4" && group == 32) || (bits == 4 && mode == "nvfp4" && group == 16) ||
            (bits == 8 && mode == "mxfp8" && group == 32),
        "a packed matrix is affine, mxfp4 (4 bits, groups of 32), mxfp8 (8 bits, groups of 32) or nvfp4 (4 bits, groups of 16)");
  return mode == "mxfp4" ? MK_MXFP4 : mode == "mxfp8" ? MK_MXFP8 : MK_NVFP4;
}
}  // namespace

// Notes what is packed and how; returns the elements of a row.
int64_t Matrix::packed(const Array& codes, const Array& scales, const Maybe& biases, int group, int bits, const std::string& mode) {
  meta_.kind = kind_of(mode, bits, group);
  meta_.bits = bits, meta_.group = group;
  mx::Shape rows = codes.shape(), same = scales.shape();
  rows.pop_back(), same.pop_back();
  check(rows == same, "codes and scales must have as many rows");
  const int64_t width = (int64_t)scales.shape(-1) * group;
  check(codes.dtype() == mx::uint32 && (int64_t)codes.shape(-1) * 32 == width * bits,
        "codes must be uint32, with the bits of as many elements as there are scales for");
  check(biases.has_value() == (meta_.kind == MK_AFFINE), "affine codes have biases, and no others");
  arrays_.push_back(scales);
  if (biases) {
    check(biases->shape() == scales.shape() && biases->dtype() == scales.dtype(), "biases must be like the scales");
    meta_.type = type_of(scales, "scales");
    arrays_.push_back(*biases);
  } else {
    check(scales.dtype() == mx::uint8, "scales of codes that are floats are uint8");
    meta_.type = MK_U8;
  }
  return width;
}

// The same of rows of GGUF's blocks.
int64_t Matrix::blocks(const Array& rows, const std::string& type) {
  meta_.kind = blocks_kind(type);
  const mk_blocks is = mk_blocks_of(meta_.kind);
  meta_.bits = 8, meta_.group = is.group;
  check(rows.dtype() == mx::uint8 && rows.shape(-1) % is.bytes == 0, "rows must be whole blocks, as bytes");
  return (int64_t)rows.shape(-1) / is.bytes * is.weights;
}

Matrix::Matrix(const Array& codes, const Maybe& scales, const Maybe& biases, const Maybe& added, int group, int bits,
               const std::string& mode)
    : arrays_{codes} {
  check(codes.ndim() >= 2 && (!scales || scales->ndim() == codes.ndim()), "a matrix has two dimensions, a stack of them more");
  int64_t width = codes.shape(-1);
  if (scales) {
    width = packed(codes, *scales, biases, group, bits, mode);
  } else if (!mode.empty()) {
    width = blocks(codes, mode);
  } else {
    meta_.kind = MK_FLOATS;
    meta_.type = type_of(codes, "the weight");
    meta_.bits = 8 * (int)codes.itemsize();
  }
  check(width > 0 && width < (1 << 24), "a row of a matrix has elements, and less than 2^24 of them");
  meta_.n = codes.shape(-2), meta_.k = (int)width;
  meta_.stride = codes.shape(-1) * (int64_t)codes.itemsize();
  mx::Shape rows = codes.shape();
  rows.pop_back();
  count_ = 1;
  for (size_t i = 0; i + 1 < rows.size(); i++) count_ *= rows[i];
  if (added) {
    check(added->shape() == rows, "the bias must have one element per output");
    meta_.added_type = type_of(*added, "the bias");
    arrays_.push_back(*added);
  }
}

Matrix Matrix::with(std::shared_ptr<const Pairs> pairs) const {
  check(pairs->get().n == meta_.n && pairs->get().k == meta_.k && count_ == 1, "pairs must be as wide as a single matrix, and give as many numbers");
  Matrix changed = *this;
  changed.meta_.pairs = &pairs->get();
  changed.pairs_ = std::move(pairs);
  return changed;
}

mk_matrix Matrix::take(const Arrays& inputs, size_t& at, mx::Stream stream) const {
  mk_matrix w = meta_;
  const void* parts[4] = {};
  for (size_t i = 0; i < arrays_.size(); i++) parts[i] = dense(inputs[at++], stream).data<void>();
  size_t i = 0;
  w.codes = parts[i++];
  if (w.kind != MK_FLOATS && !mk_is_blocks(&w)) w.scales = parts[i++];
  if (w.kind == MK_AFFINE) w.biases = parts[i++];
  w.added = parts[i];
  return w;
}

namespace {
// x and the matrices -> one answer each. With a residual, which is the last input, there is one matrix.
class Products : public Node {
 public:
  Products(mx::Stream stream, std::vector<Matrix> matrices, bool adds)
      : Node(stream), matrices_(std::move(matrices)), adds_(adds) {}
  const char* name() const override { return "ModelkitProducts"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array x = dense(in[0], stream());
    std::vector<mk_matrix> w;
    std::vector<mk_output> to;
    size_t at = 1;
    for (const Matrix& matrix : matrices_) w.push_back(matrix.take(in, at, stream()));
    for (size_t i = 0; i < out.size(); i++) {
      const float* residual = nullptr;
      if (adds_) {
        residual = dense(in[at], stream()).data<float>();
        take_over(in[at], out[i]);
      } else {
        allocate(out[i]);
      }
      to.push_back({out[i].data<float>(), (size_t)w[i].n, residual});
    }
    dispatch(stream(), [w = std::move(w), to = std::move(to), x = x.data<float>(), k = x.shape(-1), rows = rows_of(x)] {
      mk_products(w.data(), to.data(), (int)w.size(), x, (size_t)k, rows);
    });
  }

 private:
  std::vector<Matrix> matrices_;
  bool adds_;
};

Arrays products(const Array& x, const std::vector<Matrix>& matrices, const std::optional<Array>& residual) {
  want_float(x, "x");
  check(!matrices.empty(), "there must be a matrix");
  check(x.ndim() > 0, "x must have rows");
  Arrays in{x};
  std::vector<mx::Shape> shapes;
  for (const Matrix& matrix : matrices) {
    check(matrix.count() == 1, "a product takes single matrices");
    check(matrix.width() == x.shape(-1), "x's last dimension is " + std::to_string(x.shape(-1)) + ", and a row of the matrix has " +
                                             std::to_string(matrix.width()) + " elements");
    matrix.add_inputs(in);
    mx::Shape shape = x.shape();
    shape.back() = matrix.outputs();
    shapes.push_back(std::move(shape));
  }
  if (residual) {
    want_float(*residual, "what is added");
    check(matrices.size() == 1 && residual->shape() == shapes[0], "what is added must have the shape of the answer");
    in.push_back(*residual);
  }
  const mx::Stream stream = processor();
  std::vector<mx::Dtype> types(shapes.size(), mx::float32);
  return Array::make_arrays(std::move(shapes), types, std::make_shared<Products>(stream, matrices, residual.has_value()), in);
}

// act(x gate) * (x up), or the clipped gate where there is a limit.
class GatedProducts : public Node {
 public:
  GatedProducts(mx::Stream stream, Matrix gate, Matrix up, mk_gate kind)
      : Node(stream), gate_(std::move(gate)), up_(std::move(up)), kind_(kind) {}
  const char* name() const override { return "ModelkitGatedProducts"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array x = dense(in[0], stream());
    size_t at = 1;
    std::vector<mk_matrix> w{gate_.take(in, at, stream())};
    w.push_back(up_.take(in, at, stream()));
    allocate(out[0]);
    dispatch(stream(), [w = std::move(w), kind = kind_, y = out[0].data<float>(), x = x.data<float>(), k = x.shape(-1), rows = rows_of(x)] {
      mk_gated_products(w.data(), kind, y, x, (size_t)k, rows);
    });
  }

 private:
  Matrix gate_, up_;
  mk_gate kind_;
};

Array gated_products(const Array& x, const Matrix& gate, const Matrix& up, int act, float limit, float slope) {
  want_float(x, "x");
  check(act >= 0 && act < MK_ACTS, "there is no such activation");
  check(gate.outputs() == up.outputs() && gate.width() == up.width(), "the matrices of a gate and of what it gates have one shape");
  check(x.ndim() > 0 && gate.width() == x.shape(-1), "x's last dimension must be the width of the matrices");
  Arrays in{x};
  gate.add_inputs(in), up.add_inputs(in);
  mx::Shape shape = x.shape();
  shape.back() = gate.outputs();
  const mx::Stream stream = processor();
  const mk_gate kind{(mk_act)act, limit, slope};
  return Array(std::move(shape), mx::float32, std::make_shared<GatedProducts>(stream, gate, up, kind), std::move(in));
}

Array product(const Array& x, const Matrix& matrix, const std::optional<Array>& residual) { return products(x, {matrix}, residual)[0]; }

void define(nb::module_& m) {
  using MaybeArray = std::optional<Array>;
  nb::class_<Matrix>(m, "Matrix")
      .def(nb::init<const Array&, const MaybeArray&, const MaybeArray&, const MaybeArray&, int, int, const std::string&>(),
           nb::arg("codes"), nb::arg("scales").none(), nb::arg("biases").none(), nb::arg("bias").none(), nb::arg("group") = 0,
           nb::arg("bits") = 0, nb::arg("mode") = "")
      .def_prop_ro("outputs", &Matrix::outputs)
      .def_prop_ro("width", &Matrix::width)
      .def("paired", [](const Matrix& matrix, const Held<Pairs>& pairs) { return matrix.with(pairs.by); }, nb::arg("pairs"));
  m.def("activations", [] { return std::string(mk_float_rows() ? "f32" : "i16"); });
  m.def("use_activations", [](const std::string& type) {
    check(type == "i16" || type == "f32", "products read rows as i16 or f32");
    mk_use_float_rows(type == "f32");
  });
  m.def("product", &product, nb::arg("x"), nb::arg("matrix"), nb::arg("residual").none() = nb::none());
  m.def("gated_products", &gated_products, nb::arg("x"), nb::arg("gate"), nb::arg("up"), nb::arg("act"), nb::arg("limit") = 0.f,
        nb::arg("slope") = 0.f);
  m.def("products", [](const Array& x, const std::vector<Matrix>& matrices) { return products(x, matrices, {}); });
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
