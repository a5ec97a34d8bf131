// Exchanges between ranks as nodes: what is sent to a neighbour, what comes from one, and sums. See ring.h.
#include "mlx/types/half_types.h"
#include "graph/node.h"
#include "ranks/ring.h"

namespace modelkit {
namespace {
class Summed : public Node {
 public:
  Summed(mx::Stream stream, std::shared_ptr<const Sums> by) : Node(stream), by_(std::move(by)) {}
  const char* name() const override { return "ModelkitRingSum"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    take_over(in[0], out[0]);
    const Array x = dense(in[0], stream());
    if (x.dtype() == mx::float32) sum<float>(x, out[0]);
    else if (x.dtype() == mx::float16) sum<mx::float16_t>(x, out[0]);
    else sum<mx::bfloat16_t>(x, out[0]);
  }

 private:
  template <class T>
  void sum(const Array& x, Array& out) {
    dispatch(stream(), [by = by_, x = x.data<T>(), y = out.data<T>(), count = x.size()] { by->sum(x, y, count); });
  }

  std::shared_ptr<const Sums> by_;
};

class Sent : public Node {
 public:
  Sent(mx::Stream stream, std::shared_ptr<const Ring> ring, int to, bool hears)
      : Node(stream), ring_(std::move(ring)), to_(to), hears_(hears) {}
  const char* name() const override { return "ModelkitRingSend"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array x = dense(in[0], stream());
    out[0].copy_shared_buffer(x);
    dispatch(stream(), [ring = ring_, to = to_, hears = hears_, data = x.data<char>(), bytes = x.nbytes()] {
      if (hears) ring->send_and_hear(data, bytes);
      else ring->send(data, bytes, to);
    });
  }

 private:
  std::shared_ptr<const Ring> ring_;
  int to_;
  bool hears_;
};

class Received : public Node {
 public:
  Received(mx::Stream stream, std::shared_ptr<const Ring> ring, int from) : Node(stream), ring_(std::move(ring)), from_(from) {}
  const char* name() const override { return "ModelkitRingReceive"; }
  void eval_cpu(const Arrays&, Arrays& out) override {
    allocate(out[0]);
    dispatch(stream(), [ring = ring_, from = from_, data = out[0].data<char>(), bytes = out[0].nbytes()] { ring->receive(data, bytes, from); });
  }

 private:
  std::shared_ptr<const Ring> ring_;
  int from_;
};

void make_sums(Held<Sums>* at, const Held<Ring>& ring, int first, int count, long awake_us) {
  want(count > 1 && first >= 0 && first <= ring.by->rank && ring.by->rank < first + count && first + count <= ring.by->size,
       "sums are of several ranks, this one among them");
  hold<Sums, std::shared_ptr<const Ring>, int, int, long>(at, ring.by, first, count, awake_us);
}

Array summed(const Held<Sums>& sums, const Array& x) {
  want(x.dtype() == mx::float32 || x.dtype() == mx::float16 || x.dtype() == mx::bfloat16, "x must be of floats");
  return Array(x.shape(), x.dtype(), std::make_shared<Summed>(processor(), sums.by), {x});
}

Array sent(const Held<Ring>& ring, const Array& x, int to, bool hears) {
  want(ring.by->beside(to), "only neighbours exchange");
  want(!hears || to == (ring.by->rank + 1) % ring.by->size, "who hears beside sends to the right");
  return Array(x.shape(), x.dtype(), std::make_shared<Sent>(processor(), ring.by, to, hears), {x});
}

Array received(const Held<Ring>& ring, const std::vector<int>& dims, mx::Dtype dtype, int source, const std::optional<Array>& after) {
  want(ring.by->beside(source), "only neighbours exchange");
  Arrays before;
  if (after) before.push_back(*after);
  return Array(mx::Shape(dims.begin(), dims.end()), dtype, std::make_shared<Received>(processor(), ring.by, source), std::move(before));
}

void define(nb::module_& m) {
  nb::class_<Held<Ring>>(m, "Ring")
      .def("__init__", &hold<Ring, int, int, int, int, size_t>, nb::arg("left"), nb::arg("right"), nb::arg("rank"), nb::arg("size"),
           nb::arg("one_way"))
      .def_prop_ro("sums", [](const Held<Ring>& ring) { return ring.by->sums.load(); })
      .def("send", &sent, nb::arg("x"), nb::arg("to"), nb::arg("hears") = false)
      .def("receive", &received, nb::arg("shape"), nb::arg("dtype"), nb::arg("source"), nb::arg("after") = nb::none());
  nb::class_<Held<Sums>>(m, "Sums")
      .def("__init__", &make_sums, nb::arg("ring"), nb::arg("first"), nb::arg("count"), nb::arg("awake_us"))
      .def("__call__", &summed, nb::arg("x"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
