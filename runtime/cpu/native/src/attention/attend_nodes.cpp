#include "attention/attending.h"

namespace modelkit {
namespace {
// [rows, tokens, heads * size] or [rows, heads, tokens, size], the last axis side by side; anything else is copied.
mk_strided strided(const Array& x, int size, mx::Stream stream) {
  const Array y = x.strides(-1) == 1 || x.shape(-1) == 1 ? x : dense(x, stream);
  const auto& s = y.strides();
  if (y.ndim() == 3) return {y.data<float>(), s[0], size, s[1]};
  return {y.data<float>(), s[0], s[1], s[2]};
}

// in: queries, where it writes the step's keys and maybe values, then what `of` says.
class Attend : public Node {
 public:
  Attend(mx::Stream stream, Attending of) : Node(stream), of_(std::move(of)) {}
  const char* name() const override { return "ModelkitAttend"; }

  void eval_cpu(const Arrays& in, Arrays& out) override {
    hold_inputs_once(in, out);
    struct Job {
      mk_attention a{};
      std::vector<mk_row> rows;
    };
    auto job = std::make_shared<Job>();
    mk_attention& a = job->a;
    of_.set(a, in, out, stream());
    job->rows = of_.rows, a.row = job->rows.data();
    a.queries = strided(in[0], of_.by.keys.size, stream());
    if (of_.writes) {
      a.new_keys = strided(in[1], of_.by.keys.size, stream());
      if (!of_.by.values_in_keys) a.new_values = strided(in[2], of_.by.values.size, stream());
    }
    allocate(out[0]);
    a.out = out[0].data<float>();
    dispatch(stream(), [job] { mk_attend(&job->a); });
  }

 private:
  Attending of_;
};

// ---- what a step asks for, checked ----

Arrays remember(const Attention& by, const Array& queries, const Array& keys, const Maybe& values, const Maybe& table,
                const Maybe& mask, const Maybe& sinks, const Arrays& lanes, const Ints& starts, const Ints& counts,
                const Ints& bases, int first, bool beside) {
  const Shape shape = heads_of(queries, by.heads, by.keys.size, "queries");
  const Shape written = heads_of(keys, by.groups, by.keys.size, "keys");
  want(written.rows == shape.rows && written.width == shape.width, "queries and keys are of the same tokens");
  want(values.has_value() != by.values_in_keys, "values are given unless they lie in the keys");
  Arrays in{queries, keys};
  if (values) {
    const Shape also = heads_of(*values, by.groups, by.values.size, "values");
    want(also.rows == shape.rows && also.width == shape.width, "keys and values are of the same tokens");
    in.push_back(*values);
  }
  Attending of(by, shape);
  of.add_extras(table, mask, sinks, in);
  std::vector<mx::Shape> shapes{{shape.rows, shape.width, by.heads * by.values.size}};
  std::vector<mx::Dtype> types{mx::float32};
  of.write_to(lanes, starts, counts, bases, first, beside, in, shapes, types);
  return Array::make_arrays(std::move(shapes), types, std::make_shared<Attend>(processor(), std::move(of)), in);
}

Array read(const Attention& by, const Array& queries, const Maybe& table, const Maybe& mask, const Maybe& sinks,
           const Arrays& lanes, const Arrays& apart, const Ints& starts, const Ints& counts, const Ints& bases, const Ints& edges,
           const Ints& stops, int first) {
  const Shape shape = heads_of(queries, by.heads, by.keys.size, "queries");
  Arrays in{queries};
  Attending of(by, shape);
  of.add_extras(table, mask, sinks, in);
  of.read_from(lanes, apart, starts, counts, bases, edges, stops, first, in);
  return Array({shape.rows, shape.width, by.heads * by.values.size}, mx::float32,
               std::make_shared<Attend>(processor(), std::move(of)), std::move(in));
}

void define(nb::module_& m) {
  nb::class_<Attention>(m, "Attention")
      .def(nb::init<int, int, std::tuple<int, int, int>, std::optional<std::tuple<int, int, int>>, int, float, float, std::optional<int>,
                    std::optional<int>, std::optional<int>, bool>(),
           nb::arg("heads"), nb::arg("groups"), nb::arg("keys"), nb::arg("values").none(), nb::arg("value_size"), nb::arg("scale"),
           nb::arg("softcap"), nb::arg("window").none(), nb::arg("chunk").none(), nb::arg("ahead").none(), nb::arg("traditional"))
      .def("remember", &remember, nb::arg("queries"), nb::arg("keys"), nb::arg("values").none(), nb::arg("table").none(),
           nb::arg("mask").none(), nb::arg("sinks").none(), nb::arg("lanes"), nb::arg("starts"), nb::arg("counts"), nb::arg("bases"),
           nb::arg("first"), nb::arg("beside"))
      .def("read", &read, nb::arg("queries"), nb::arg("table").none(), nb::arg("mask").none(), nb::arg("sinks").none(), nb::arg("lanes"),
           nb::arg("beside"), nb::arg("starts"), nb::arg("counts"), nb::arg("bases"), nb::arg("edges"), nb::arg("stops"),
           nb::arg("first"));
}
const Topic topic(define);
}  // namespace
}  // namespace modelkit
