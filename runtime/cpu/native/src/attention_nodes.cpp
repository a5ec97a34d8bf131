// The sublayer that attends as one node: a norm, the products that queries, keys and values are, norms of their heads,
// attention over layer memory, the product that closes, a norm behind it, and what all that is added to. Each step is
// the kernel that it would be by itself, so the bits are those of the same steps in nodes of their own.
#include "attending.h"
#include "sublayers.h"

namespace modelkit {
namespace {
// What all steps have in common. open: matrices of queries, keys and values, or one with their rows in this order.
struct Block {
  MaybeNorm norm;
  std::vector<Matrix> open;
  MaybeNorm query_norm, key_norm;  // along each head
  Attention by;
  Matrix close;
  MaybeNorm after;
  Weights weights;

  Block(const MaybeNorm& norm, const std::vector<Matrix>& open, const MaybeNorm& query_norm, const MaybeNorm& key_norm,
        const Attention& by, const Matrix& close, const MaybeNorm& after)
      : norm(norm), open(open), query_norm(query_norm), key_norm(key_norm), by(by), close(close), after(after) {
    want(!by.values_in_keys, "values that lie in the keys have no matrix");
    want(open.size() == 1 || open.size() == 3, "queries, keys and values have one matrix or three");
    want(open.size() == 3 || (!query_norm && !key_norm), "heads with norms have three matrices");
    int outputs = 0;
    weights.add(norm, width());
    for (const Matrix& matrix : open) {
      want_matrix(matrix, width(), "a matrix must be a single one, as wide as x");
      weights.add(matrix);
      outputs += matrix.outputs();
    }
    want(outputs == queries() + keys() + values() &&
             (open.size() == 1 || (open[0].outputs() == queries() && open[1].outputs() == keys())),
         "matrices must have as many outputs as there are numbers in all heads");
    weights.add(query_norm, by.keys.size), weights.add(key_norm, by.keys.size);
    want_closing(close, by.heads * by.values.size, after);
    weights.add(close), weights.add(after, width());
  }
  int width() const { return close.outputs(); }
  int queries() const { return by.heads * by.keys.size; }
  int keys() const { return by.groups * by.keys.size; }
  int values() const { return by.groups * by.values.size; }
};

// What its kernels need. One step after the other, each for all rows.
struct Job {
  std::shared_ptr<const Block> by;
  Attending of;
  mk_attention a{};
  const float* x;
  MaybeRun norm, query_norm, key_norm;
  std::vector<mk_matrix> open;
  Closing close;

  Job(std::shared_ptr<const Block> by, Attending of) : by(std::move(by)), of(std::move(of)) {}

  void run() {
    const int rows = a.rows * a.width, k = by->width(), all = by->queries() + by->keys() + by->values();
    if (!rows) return;
    const Scratch normed = norm ? scratch(rows, k) : nullptr, made = scratch(rows, all), seen = scratch(rows, close.w.k);
    if (norm) (*norm)(x, nullptr, normed.get(), rows, k);
    project(norm ? normed.get() : x, made.get(), rows, all);
    a.out = seen.get();
    mk_attend(&a);
    close.run(seen.get(), rows);
  }

 private:
  // Tokens `apart` floats from each other.
  mk_strided heads(const float* data, size_t apart, int size) const {
    return {data, (ptrdiff_t)apart * a.width, size, (ptrdiff_t)apart};
  }

  void project(const float* x, float* made, int rows, int all) {
    const int k = by->width(), queries = by->queries(), keys = by->keys(), values = by->values();
    if (open.size() == 1) {
      const mk_output to = {made, (size_t)all, nullptr};
      mk_products(open.data(), &to, 1, x, k, rows);
      a.queries = heads(made, all, a.size), a.new_keys = heads(made + queries, all, a.size);
      a.new_values = heads(made + queries + keys, all, a.value_size);
      return;
    }
    float *of_keys = made + (size_t)rows * queries, *of_values = of_keys + (size_t)rows * keys;
    const mk_output to[] = {{made, (size_t)queries, nullptr}, {of_keys, (size_t)keys, nullptr}, {of_values, (size_t)values, nullptr}};
    mk_products(open.data(), to, 3, x, k, rows);
    if (query_norm) (*query_norm)(made, nullptr, made, rows * a.heads, a.size);
    if (key_norm) (*key_norm)(of_keys, nullptr, of_keys, rows * a.groups, a.size);
    a.queries = heads(made, queries, a.size), a.new_keys = heads(of_keys, keys, a.size);
    a.new_values = heads(of_values, values, a.value_size);
  }
};

// in: x, then what `of` says, then the weights.
class Attended : public Node {
 public:
  Attended(mx::Stream stream, std::shared_ptr<const Block> by, Attending of, int at)
      : Node(stream), by_(std::move(by)), of_(std::move(of)), at_(at) {}
  const char* name() const override { return "ModelkitAttention"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    hold_inputs_once(in, out);
    auto job = std::make_shared<Job>(by_, of_);
    job->of.set(job->a, in, out, stream());
    job->x = dense(in[0], stream()).data<float>();
    Taken from = by_->weights.take(in, at_, stream());
    job->norm = take(by_->norm, from);
    job->open = take(by_->open, from);
    job->query_norm = take(by_->query_norm, from), job->key_norm = take(by_->key_norm, from);
    job->close = {take(by_->close, from), {}, job->x, nullptr};
    job->close.after = take(by_->after, from);
    take_over(in[0], out[0]); /* x is read for the last time where it is added to */
    job->close.y = out[0].data<float>();
    dispatch(stream(), [job] { job->run(); });
  }

 private:
  std::shared_ptr<const Block> by_;
  Attending of_;
  int at_;
};

// As Python has a block: called with x [rows, tokens, width] and the step. Returns the answer, and the lanes as they are
// once the step's tokens are written; or what lies beside them.
class AttentionBlock {
 public:
  AttentionBlock(const MaybeNorm& norm, const std::vector<Matrix>& open, const MaybeNorm& query_norm, const MaybeNorm& key_norm,
                 const Attention& by, const Matrix& close, const MaybeNorm& after)
      : by_(std::make_shared<Block>(norm, open, query_norm, key_norm, by, close, after)) {}

  Arrays added(const Array& x, const Maybe& table, const Arrays& lanes, const Ints& starts, const Ints& counts, const Ints& bases,
               int first, bool beside) const {
    want_rows(x, by_->width());
    want(x.ndim() == 3, "x must be [rows, tokens, width]");
    Attending of(by_->by, {x.shape(0), x.shape(1)});
    Arrays in{x};
    of.add_extras(table, {}, {}, in);
    std::vector<mx::Shape> shapes{x.shape()};
    std::vector<mx::Dtype> types{mx::float32};
    of.write_to(lanes, starts, counts, bases, first, beside, in, shapes, types);
    const int at = by_->weights.join(in);
    return Array::make_arrays(std::move(shapes), types, std::make_shared<Attended>(processor(), by_, std::move(of), at), in);
  }

 private:
  std::shared_ptr<const Block> by_;
};

void define(nb::module_& m) {
  nb::class_<AttentionBlock>(m, "AttentionBlock")
      .def(nb::init<const MaybeNorm&, const std::vector<Matrix>&, const MaybeNorm&, const MaybeNorm&, const Attention&, const Matrix&,
                    const MaybeNorm&>(),
           nb::arg("norm").none(), nb::arg("open"), nb::arg("query_norm").none(), nb::arg("key_norm").none(), nb::arg("attention"),
           nb::arg("close"), nb::arg("after").none())
      .def("__call__", &AttentionBlock::added, nb::arg("x"), nb::arg("table").none(), nb::arg("lanes"), nb::arg("starts"),
           nb::arg("counts"), nb::arg("bases"), nb::arg("first"), nb::arg("beside"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
