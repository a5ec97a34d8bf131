#include "experts/route_nodes.h"

namespace modelkit {
namespace {
class Route : public Node {
 public:
  Route(mx::Stream stream, mk_routing by, bool corrects) : Node(stream), by_(by), corrects_(corrects) {}
  const char* name() const override { return "ModelkitRoute"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array scores = dense(in[0], stream());
    mk_routing by = by_;
    if (corrects_) by.correction = dense(in[1], stream()).data<float>();
    if (in.size() > 1u + corrects_) by.shares = dense(in[1 + corrects_], stream()).data<float>();
    for (Array& array : out) allocate(array);
    dispatch(stream(), [by, scores = scores.data<float>(), rows = rows_of(in[0]), chosen = out[0].data<int>(), weights = out[1].data<float>()] {
      if (rows) mk_route(&by, scores, rows, chosen, weights);
    });
  }

 private:
  mk_routing by_;
  bool corrects_;
};

// scores [..., E] -> (chosen int32 [..., k], weights float32 [..., k])
std::pair<Array, Array> route(const Routing& routing, const Array& scores) {
  want_float(scores, "scores");
  const mk_routing by = routing.among(scores.ndim() ? scores.shape(-1) : 0);
  Arrays in{scores};
  if (routing.correction) in.push_back(*routing.correction);
  if (routing.shares) in.push_back(*routing.shares);
  mx::Shape shape = scores.shape();
  shape.back() = by.each;
  const auto out = Array::make_arrays({shape, shape}, {mx::int32, mx::float32}, std::make_shared<Route>(processor(), by, routing.correction.has_value()), in);
  return {out[0], out[1]};
}

void define(nb::module_& m) {
  nb::class_<Routing>(m, "Routing")
      .def(nb::init<int, int, const std::optional<Array>&, int, int, int, bool, float, float, const std::optional<Array>&, float>(), nb::arg("gates"), nb::arg("each"),
           nb::arg("correction").none(), nb::arg("groups"), nb::arg("top_groups"), nb::arg("judges"), nb::arg("normalize"),
           nb::arg("scale"), nb::arg("least"), nb::arg("shares").none() = nb::none(), nb::arg("nearness") = 0.0f);
  m.def("route", &route, nb::arg("routing"), nb::arg("scores"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
