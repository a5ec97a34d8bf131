// Tokens drawn from logits, each by its row's wishes and with noise of its own.
#include "sampling/draw_nodes.h"

namespace modelkit {
namespace {
// The key of noise at a place of a sequence, as runtime/sampling/noise.py makes it.
uint64_t splitmix(uint64_t word) {
  word += 0x9e3779b97f4a7c15ull;
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ word >> 27) * 0x94d049bb133111ebull;
  return word ^ word >> 31;
}
Key key_of(uint64_t seed, uint64_t place) {
  const uint64_t word = splitmix(splitmix(seed) ^ place);
  return {(uint32_t)(word >> 32), (uint32_t)word | 1};
}
}  // namespace

Draws::Draws(std::vector<uint64_t> seeds, const std::vector<float>& temperatures, const std::vector<int>& top_k, const std::vector<float>& top_p,
             const std::vector<float>& min_p, const std::vector<float>& typical_p)
    : seeds_(std::move(seeds)) {
  const size_t count = seeds_.size();
  want(temperatures.size() == count && top_k.size() == count && top_p.size() == count && min_p.size() == count && typical_p.size() == count,
       "there is one number of each kind per row");
  for (size_t i = 0; i < count; i++) {
    want(temperatures[i] > 0 && top_p[i] > 0 && min_p[i] <= 0 && typical_p[i] > 0,
         "temperature, top_p and typical_p are above 0, and the logarithm of min_p is not");
    want(top_k[i] >= 0 && top_k[i] <= MK_MOST_TOP_K, "top_k is 0 to 1024");
    wanted_.push_back({temperatures[i], top_k[i], top_p[i], min_p[i], typical_p[i]});
  }
}

std::vector<Key> Draws::keys(const std::vector<uint32_t>& positions, int columns) const {
  want(positions.size() == rows(), "there is a position, and what is wanted, for each row");
  std::vector<Key> keys;
  keys.reserve(rows() * columns);
  for (size_t r = 0; r < rows(); r++)
    for (int c = 0; c < columns; c++) keys.push_back(key_of(seeds_[r], (uint64_t)positions[r] + c));
  return keys;
}

namespace {
class Draw : public Node {
 public:
  Draw(mx::Stream stream, std::shared_ptr<const Draws> by, std::vector<Key> keys) : Node(stream), by_(std::move(by)), keys_(std::move(keys)) {}
  const char* name() const override { return "ModelkitDraw"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Rows x = rows_in_place(in[0], stream());
    allocate(out[0]);
    dispatch(stream(), [x, by = by_, keys = keys_, y = out[0].data<int32_t>(), columns = in[0].shape(1), size = in[0].shape(2)] {
      by->draw(x.data, x.stride, keys.data(), y, columns, size);
    });
  }

 private:
  std::shared_ptr<const Draws> by_;
  std::vector<Key> keys_;
};

// logits [rows, columns, ids] -> int32 [rows, columns]
Array draw(const Array& logits, const Held<Draws>& held, const std::vector<uint32_t>& positions) {
  const auto& by = held.by;
  want_float(logits, "logits");
  want(logits.ndim() == 3 && logits.shape(2) > 0, "logits are [rows, columns, ids]");
  want((size_t)logits.shape(0) == by->rows(), "there is a position, and what is wanted, for each row");
  std::vector<Key> keys = by->keys(positions, logits.shape(1));
  return Array({logits.shape(0), logits.shape(1)}, mx::int32, std::make_shared<Draw>(processor(), by, std::move(keys)), Arrays{logits});
}

void define(nb::module_& m) {
  using Floats = std::vector<float>;
  nb::class_<Held<Draws>>(m, "Draws")
      .def("__init__", &hold<Draws, std::vector<uint64_t>, Floats, std::vector<int>, Floats, Floats, Floats>, nb::arg("seeds"), nb::arg("temperatures"),
           nb::arg("top_k"), nb::arg("top_p"), nb::arg("min_p"), nb::arg("typical_p"));
  m.def("draw", &draw, nb::arg("logits"), nb::arg("by"), nb::arg("positions"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
