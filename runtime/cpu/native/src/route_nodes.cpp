#include "node.h"
#include "route.h"

namespace modelkit {
namespace {
class Route : public Node {
 public:
  Route(mx::Stream stream, mk_routing by) : Node(stream), by_(by) {}
  const char* name() const override { return "ModelkitRoute"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array scores = dense(in[0], stream());
    mk_routing by = by_;
    if (in.size() > 1) by.correction = dense(in[1], stream()).data<float>();
    for (Array& array : out) allocate(array);
    dispatch(stream(), [by, scores = scores.data<float>(), rows = rows_of(in[0]), chosen = out[0].data<int>(), weights = out[1].data<float>()] {
      if (rows) mk_route(&by, scores, rows, chosen, weights);
    });
  }

 private:
  mk_routing by_;
};

// scores [..., E] -> (chosen int32 [..., k], weights float32 [..., k])
std::pair<Array, Array> route(int gates, const Array& scores, int each, const std::optional<Array>& correction, int groups, int top_groups,
                              bool normalize, float scale) {
  want_float(scores, "scores");
  want(gates >= MK_GATES_SOFTMAX && gates <= MK_GATES_SIGMOID, "no such gates");
  const int experts = scores.ndim() ? scores.shape(-1) : 0;
  want(each > 0 && each <= experts, "a row asks one expert at least, and no more than there are");
  want(groups > 0 && experts % groups == 0 && top_groups > 0 && top_groups <= groups, "groups must be equal, and some of them open");
  Arrays in{scores};
  if (correction) {
    want_float(*correction, "a correction");
    want(correction->shape() == mx::Shape{experts}, "a correction has one number for each expert");
    in.push_back(*correction);
  }
  mx::Shape shape = scores.shape();
  shape.back() = each;
  const mk_routing by = {(mk_gates)gates, experts, each, groups, top_groups, normalize, scale, nullptr};
  const auto out = Array::make_arrays({shape, shape}, {mx::int32, mx::float32}, std::make_shared<Route>(processor(), by), in);
  return {out[0], out[1]};
}

void define(nb::module_& m) {
  m.def("route", &route, nb::arg("gates"), nb::arg("scores"), nb::arg("each"), nb::arg("correction").none(), nb::arg("groups"),
        nb::arg("top_groups"), nb::arg("normalize"), nb::arg("scale"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
