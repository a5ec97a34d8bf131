#include "products/pairs_nodes.h"

#include <algorithm>
#include <map>

#include "products/products_nodes.h"

namespace modelkit {
const void* Pairs::take(const Array& x, const mx::Shape& shape, const char* what) {
  want(x.shape() == shape, what);
  want(x.is_available() && x.flags().row_contiguous, "what adapters add must have been computed, its rows one behind the other");
  held_.push_back(x);
  return x.data<void>();
}

Pairs::Pairs(int width, int outputs, const Maybe& down, const Maybe& up, const Maybe& factor, const Maybe& bias, const Maybe& own,
             std::vector<int> places)
    : places_(std::move(places)) {
  want(down.has_value() == up.has_value(), "a pair consists of two matrices");
  int count = 0;
  for (const Maybe& each : {down, factor, bias})
    if (each && each->ndim()) count = each->shape(0);
  by_.adapters = count, by_.known = (int)places_.size(), by_.k = width, by_.n = outputs;
  if (down) {
    want(down->ndim() == 3, "the matrices of pairs are [adapters, ...]");
    by_.rank = down->shape(2);
    by_.down_type = type_of(*down, "the matrices of pairs"), by_.up_type = type_of(*up, "the matrices of pairs");
    by_.down = take(*down, {count, width, by_.rank}, "pairs must be as wide as their matrix");
    by_.up = take(*up, {count, (outputs + MK_STRIP - 1) / MK_STRIP, by_.rank, MK_STRIP}, "pairs must give as many numbers as their matrix");
  }
  auto floats = [&](const Maybe& x, const mx::Shape& shape) -> const float* {
    if (!x) return nullptr;
    want_float(*x, "factors and biases");
    return (const float*)take(*x, shape, "factors and biases must be as many as outputs");
  };
  by_.factor = floats(factor, {count, outputs}), by_.bias = floats(bias, {count, outputs}), by_.own = floats(own, {outputs});
  for (int place : places_) want(place >= -1 && place < count, "an adapter's place must be one of those that there are");
  by_.places = places_.data();
}

Members::Members(const std::vector<std::vector<std::pair<int, float>>>& rows) {
  std::map<std::vector<std::pair<int, float>>, std::vector<int>> alike;
  for (size_t row = 0; row < rows.size(); row++) {
    for (const auto& [adapter, scale] : rows[row]) want(adapter >= 0, "adapters are counted from zero");
    if (!rows[row].empty()) alike[rows[row]].push_back((int)row);
  }
  want(!rows.empty(), "there must be rows");
  for (const auto& [its, who] : alike) {
    std::vector<mk_member>& members = members_.emplace_back();
    for (const auto& [adapter, scale] : its) members.push_back({adapter, scale});
    rows_.push_back(who);
    by_.most = std::max(by_.most, (int)its.size());
  }
  for (size_t i = 0; i < rows_.size(); i++) kin_.push_back({members_[i].data(), rows_[i].data(), (int)members_[i].size(), (int)rows_[i].size()});
  by_.kin = kin_.data(), by_.kinds = (int)kin_.size(), by_.rows = (int)rows.size();
}

namespace {
// x and the product of it -> the same with what adapters add.
class AddPairs : public Node {
 public:
  AddPairs(mx::Stream stream, std::shared_ptr<const Pairs> pairs, std::shared_ptr<const Members> members)
      : Node(stream), pairs_(std::move(pairs)), members_(std::move(members)) {}
  const char* name() const override { return "ModelkitAddPairs"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array x = dense(in[0], stream()), y = dense(in[1], stream());
    const bool same = take_over(in[1], out[0]);
    mk_matrix w{};
    w.pairs = &pairs_->get(), w.members = &members_->get(), w.k = w.pairs->k, w.n = w.pairs->n;
    dispatch(stream(), [w, to = out[0].data<float>(), x = x.data<float>(), y = y.data<float>(), rows = rows_of(x), same, pairs = pairs_,
                        members = members_] {
      if (!same) std::copy_n(y, (size_t)rows * w.n, to);
      mk_add_pairs(&w, to, x, rows);
    });
  }

 private:
  std::shared_ptr<const Pairs> pairs_;
  std::shared_ptr<const Members> members_;
};

Array add_pairs(const Array& x, const Array& y, const Held<Pairs>& held_pairs, const Held<Members>& held_members) {
  const auto& pairs = held_pairs.by;
  const auto& members = held_members.by;
  want_float(x, "x"), want_float(y, "y");
  want(x.ndim() > 1 && x.ndim() == y.ndim() && x.shape(0) == members->rows(), "there must be as many rows as there are members");
  mx::Shape shape = x.shape();
  shape.back() = pairs->get().n;
  want(x.shape(-1) == pairs->get().k && y.shape() == shape, "pairs must be as wide as x, and give as many numbers as y has");
  return Array(shape, mx::float32, std::make_shared<AddPairs>(processor(), pairs, members), {x, y});
}

void define(nb::module_& m) {
  using Maybe = std::optional<Array>;
  nb::class_<Held<Pairs>>(m, "Pairs")
      .def("__init__", &hold<Pairs, int, int, Maybe, Maybe, Maybe, Maybe, Maybe, std::vector<int>>, nb::arg("width"), nb::arg("outputs"),
           nb::arg("down").none(), nb::arg("up").none(), nb::arg("factor").none(), nb::arg("bias").none(), nb::arg("own").none(),
           nb::arg("places"));
  nb::class_<Held<Members>>(m, "Members").def("__init__", &hold<Members, std::vector<std::vector<std::pair<int, float>>>>, nb::arg("rows"));
  m.def("add_pairs", &add_pairs, nb::arg("x"), nb::arg("y"), nb::arg("pairs"), nb::arg("members"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
