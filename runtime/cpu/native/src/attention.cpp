// The sublayer that attends: a norm, the products that queries, keys and values are, norms of their heads,
// attention over layer memory, gates of what was seen, the product that closes, a norm behind it, and what all that is added to.
#include "activations.h"
#include "attending.h"
#include "sublayers.h"

namespace modelkit {
namespace {
// open: matrices of queries, keys and values, or one with their rows in this order. gated: with each head's query comes a gate of
// its size, whose sigmoid multiplies what the head has seen. together: norms of queries and of keys run over all heads.
class Attend : public Sublayer {
 public:
  MaybeNorm norm;
  std::vector<Matrix> open;
  MaybeNorm query_norm, key_norm;  // along each head
  Attention by;
  Maybe sinks;  // one more logit per head
  bool gated, together;
  Matrix close;
  MaybeNorm after;

  Attend(const MaybeNorm& norm, const std::vector<Matrix>& open, const MaybeNorm& query_norm, const MaybeNorm& key_norm,
         const Attention& by, const Maybe& sinks, bool gated, bool together, const Matrix& close,
         const MaybeNorm& after)
      : norm(norm), open(open), query_norm(query_norm), key_norm(key_norm), by(by), sinks(sinks), gated(gated), together(together),
        close(close), after(after) {
    want(!by.values_in_keys, "values that lie in the keys have no matrix");
    want(open.size() == 1 || open.size() == 3, "queries, keys and values have one matrix or three");
    want(open.size() == 3 || (!query_norm && !key_norm && !gated), "heads with norms or gates have three matrices");
    want(!gated || by.keys.size == by.values.size, "a gate is as long as a query, and as what a head sees");
    int outputs = 0;
    weights.add(norm, width());
    for (const Matrix& matrix : open) {
      want_matrix(matrix, width(), "a matrix must be a single one, as wide as x");
      weights.add(matrix);
      outputs += matrix.outputs();
    }
    want(outputs == asked() + keys() + values() &&
             (open.size() == 1 || (open[0].outputs() == asked() && open[1].outputs() == keys())),
         "matrices must have as many outputs as there are numbers in all heads");
    want(!together || !gated, "norms of all heads together know no gates");
    weights.add(query_norm, together ? queries() : by.keys.size), weights.add(key_norm, together ? keys() : by.keys.size);
    if (sinks) {
      want(sinks->shape() == mx::Shape{by.heads}, "there must be one sink per head");
      weights.add(*sinks);
    }
    want_closing(close, by.heads * by.values.size, after);
    weights.add(close), weights.add(after, width());
  }
  int width() const override { return close.outputs(); }
  int queries() const { return by.heads * by.keys.size; }
  int asked() const { return gated ? 2 * queries() : queries(); }  // with what comes with them
  int keys() const { return by.groups * by.keys.size; }
  int values() const { return by.groups * by.values.size; }

  bool remembers() const override { return true; }
  Remembered remember(const Memory& memory, Making& made) const override {
    want(std::holds_alternative<Lanes>(memory), "one that attends must have lanes");
    const auto& [table, lanes, bases, beside] = std::get<Lanes>(memory);
    Attending of(by, Shape{made.rows, made.width});
    of.add_extras(table, {}, {}, made.in);
    of.write_to(lanes, made.starts, made.counts, bases, made.first, beside, made.in, made.shapes, made.types);
    return of;
  }
  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const override;

 private:
  // Its weights as kernels take them.
  struct Weighed {
    MaybeRun norm, query_norm, key_norm;
    std::vector<mk_matrix> open;
    Closing close;
    const float* sinks;
  };
  struct Job;
  mutable std::shared_ptr<const Weighed> weighed_;
};

// What its kernels need. One step after the other, each for all rows.
struct Attend::Job {
  const Attend* by;  // the node holds it, and `a.row`
  std::shared_ptr<const Weighed> weighed;
  mk_attention a{};

  void run(const float* x, const float* to, float* y, int rows) {
    const auto& [norm, query_norm, key_norm, open, close, sinks] = *weighed;
    const int k = by->width(), all = by->asked() + by->keys() + by->values();
    const Scratch normed = norm ? scratch(rows, k) : nullptr, made = scratch(rows, all), seen = scratch(rows, close.w.k);
    const Scratch asking = by->gated && query_norm ? scratch(rows, by->queries()) : nullptr;
    if (norm) (*norm)(x, nullptr, normed.get(), rows, k);
    project(norm ? normed.get() : x, made.get(), asking.get(), rows, all);
    a.out = seen.get();
    mk_attend(&a);
    if (by->gated)
      mk_gate_rows({MK_SIGMOID, 0, 0}, made.get() + a.size, 2 * a.size, seen.get(), a.size, seen.get(), rows * a.heads, a.size);
    close.run(seen.get(), to, y, rows);
  }

 private:
  // Tokens `apart` floats from each other.
  mk_strided heads(const float* data, size_t apart, int size) const {
    return {data, (ptrdiff_t)apart * a.width, size, (ptrdiff_t)apart};
  }

  // asking: where normed queries go that come with gates.
  void project(const float* x, float* made, float* asking, int rows, int all) {
    const auto& [norm, query_norm, key_norm, open, close, sinks] = *weighed;
    const int k = by->width(), queries = by->queries(), keys = by->keys(), values = by->values(), asked = by->asked();
    if (open.size() == 1) {
      const mk_output to = {made, (size_t)all, nullptr};
      mk_products(open.data(), &to, 1, x, k, rows);
      a.queries = heads(made, all, a.size), a.new_keys = heads(made + queries, all, a.size);
      a.new_values = heads(made + queries + keys, all, a.value_size);
      return;
    }
    float *of_keys = made + (size_t)rows * asked, *of_values = of_keys + (size_t)rows * keys;
    const mk_output to[] = {{made, (size_t)asked, nullptr}, {of_keys, (size_t)keys, nullptr}, {of_values, (size_t)values, nullptr}};
    mk_products(open.data(), to, 3, x, k, rows);
    const float* of_queries = asking ? asking : made;
    const int parts = by->together ? 1 : a.heads, of_key = by->together ? 1 : a.groups;
    if (query_norm) query_norm->from(made, asked / parts, nullptr, asking ? asking : made, rows * parts, queries / parts);
    if (key_norm) (*key_norm)(of_keys, nullptr, of_keys, rows * of_key, keys / of_key);
    a.queries = asking ? heads(of_queries, queries, a.size) : heads(of_queries, asked, asked / a.heads);
    a.new_keys = heads(of_keys, keys, a.size), a.new_values = heads(of_values, values, a.value_size);
  }
};

Sublayer::Run Attend::ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const {
  const auto weighed = once(weighed_, from, [&] {
    Weighed w;
    w.norm = take(norm, from), w.open = take(open, from);
    w.query_norm = take(query_norm, from), w.key_norm = take(key_norm, from);
    w.sinks = sinks ? from.floats() : nullptr;
    w.close = {take(close, from), {}, share};
    w.close.after = take(after, from);
    return w;
  });
  auto job = std::make_shared<Job>(Job{this, weighed});
  std::get<Attending>(of).set(job->a, in, out, from.stream);
  if (weighed->sinks) job->a.sinks = weighed->sinks;
  return [job](const float* x, const float* to, float* y, int rows) { job->run(x, to, y, rows); };
}

void define(nb::module_& m) {
  m.def("attention", [](const MaybeNorm& norm, const std::vector<Matrix>& open, const MaybeNorm& query_norm, const MaybeNorm& key_norm,
                        const Attention& by, const Maybe& sinks, bool gated, bool together, const Matrix& close, const MaybeNorm& after) {
    return Part{std::make_shared<Attend>(norm, open, query_norm, key_norm, by, sinks, gated, together, close, after)};
  }, nb::arg("norm").none(), nb::arg("open"), nb::arg("query_norm").none(), nb::arg("key_norm").none(), nb::arg("attention"),
     nb::arg("sinks").none(), nb::arg("gated"), nb::arg("together"), nb::arg("close"), nb::arg("after").none());
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
