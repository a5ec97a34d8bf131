#include "graph/node.h"
#include "rows/rope.h"

namespace modelkit {
namespace {
class RopeTable : public Node {
 public:
  RopeTable(mx::Stream stream, std::vector<int64_t> starts, int ahead, float factor)
      : Node(stream), starts_(std::move(starts)), ahead_(ahead), factor_(factor) {}
  const char* name() const override { return "ModelkitRopeTable"; }
  // in: frequencies [1 or B, 2, pairs], and positions [B, L] where they are not counted on from `starts`.
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array frequencies = dense(in[0], stream());
    allocate(out[0]);
    const int batch = out[0].shape(0), width = out[0].shape(1), pairs = frequencies.shape(-1);
    const int32_t* given = in.size() > 1 ? dense(in[1], stream()).data<int32_t>() : nullptr;
    dispatch(stream(), [f = frequencies.data<float>(), apart = frequencies.shape(0) > 1 ? 2 * pairs : 0, given, starts = starts_,
                        ahead = ahead_, factor = factor_, y = out[0].data<float>(), batch, width, pairs] {
      std::vector<int64_t> positions((size_t)batch * width);
      for (int i = 0; i < batch * width; i++) positions[i] = (given ? given[i] : starts[i / width] + i % width) + ahead;
      mk_rope_table(f, apart, pairs, positions.data(), factor, y, batch * width, width);
    });
  }

 private:
  std::vector<int64_t> starts_;
  int ahead_;
  float factor_;
};

// Of positions [B, L], or of `width` positions from each of `starts` on. Returns [B, L, 2 * pairs].
Array rope_table(const Array& frequencies, const std::optional<Array>& positions, std::vector<int64_t> starts, int width,
                 int ahead, float factor) {
  want_float(frequencies, "frequencies");
  if (positions && (positions->ndim() != 2 || positions->dtype() != mx::int32))
    throw std::invalid_argument("positions must be int32 [B, L]");
  const int batch = positions ? positions->shape(0) : (int)starts.size();
  if (positions) width = positions->shape(1);
  if (batch < 1 || width < 1) throw std::invalid_argument("there must be positions");
  if (frequencies.ndim() != 3 || frequencies.shape(1) != 2 || frequencies.shape(2) < 1 ||
      (frequencies.shape(0) != 1 && frequencies.shape(0) != batch))
    throw std::invalid_argument("frequencies must be [1 or B, 2, pairs]");
  Arrays in{frequencies};
  if (positions) in.push_back(*positions);
  return Array({batch, width, 2 * frequencies.shape(2)}, mx::float32,
               std::make_shared<RopeTable>(processor(), std::move(starts), ahead, factor), std::move(in));
}

class RopeTurn : public Node {
 public:
  RopeTurn(mx::Stream stream, bool traditional) : Node(stream), traditional_(traditional) {}
  const char* name() const override { return "ModelkitRopeTurn"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array x = in[0].strides(-1) == 1 || in[0].shape(-1) == 1 ? in[0] : dense(in[0], stream());
    const Array table = dense(in[1], stream());
    allocate(out[0]);
    const struct mk_heads heads = {x.data<float>(), x.strides(0), x.strides(1), x.strides(2), x.shape(0), x.shape(1), x.shape(2), x.shape(3)};
    const int pairs = table.shape(2) / 2;
    const ptrdiff_t apart = table.shape(0) > 1 ? (ptrdiff_t)table.shape(1) * table.shape(2) : 0;
    dispatch(stream(), [heads, table = table.data<float>(), apart, pairs, traditional = traditional_, y = out[0].data<float>()] {
      if (heads.batch && heads.heads && heads.width) mk_rope_turn(heads, table, apart, pairs, traditional, y);
    });
  }

 private:
  bool traditional_;
};

// Heads [B, H, L, D] by a table [B or 1, L, 2 * pairs].
Array rope_turn(const Array& x, const Array& table, bool traditional) {
  want_float(x, "x");
  want_float(table, "the table");
  if (x.ndim() != 4 || table.ndim() != 3) throw std::invalid_argument("x must be [B, H, L, D] and its table [B or 1, L, R]");
  if ((table.shape(0) != 1 && table.shape(0) != x.shape(0)) || table.shape(1) != x.shape(2) || table.shape(2) % 2 ||
      table.shape(2) < 2 || table.shape(2) > x.shape(3))
    throw std::invalid_argument("the table does not fit x");
  return Array(x.shape(), mx::float32, std::make_shared<RopeTurn>(processor(), traditional), Arrays{x, table});
}

void define(nb::module_& m) {
  m.def("rope_table", &rope_table, nb::arg("frequencies"), nb::arg("positions").none(), nb::arg("starts"), nb::arg("width"),
        nb::arg("ahead"), nb::arg("factor"));
  m.def("rope_turn", &rope_turn, nb::arg("x"), nb::arg("table"), nb::arg("traditional"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
