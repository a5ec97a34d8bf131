// The sublayer of latent attention: all heads read one vector per token, a latent behind which the turned part of its key
// lies. Queries are taken to the latents by a matrix of their head, and what a head sees of latents is taken to its values by
// another. Products by heads are those of a stack whose matrices are known.
#include "experts/experts.h"
#include "rows/rope.h"
#include "sublayers/sublayers.h"

namespace modelkit {
namespace {
struct ByHeads {
  mk_matrix stack;
  int heads;

  // y = x times the matrix of its head. x, y: `wide` and `apart` floats from head to head, all heads of a row side by side.
  void operator()(const float* x, size_t wide, float* y, size_t apart, int rows) const {
    std::vector<mk_asked> asked;
    asked.reserve((size_t)rows * heads);
    for (int h = 0; h < heads; h++)
      for (size_t r = 0; r < (size_t)rows; r++) asked.push_back({h, x + (r * heads + h) * wide, y + (r * heads + h) * apart});
    mk_ask(&stack, asked.data(), (int)asked.size());
  }
};

// The same stack the other way: outputs are what was summed over.
mk_matrix turned_over(mk_matrix w) {
  std::swap(w.n, w.k);
  w.across = 1;
  return w;
}

// open: the matrix of queries, or of what `widen` makes queries of behind a norm; and that of keys, the latent first.
struct Parts {
  MaybeNorm norm;
  std::vector<Matrix> open;
  MaybeNorm low_norm;
  std::optional<Matrix> widen;
  Norm key_norm;  // of the latent
  Matrix to_latents, to_values;  // of each head [content, latent] and [value, latent]
  Matrix close;
  MaybeNorm after;
};

class Latent : public Sublayer {
 public:
  Parts parts;
  Attention by;
  bool traditional;

  Latent(const Parts& given, const Attention& by, bool traditional) : parts(given), by(by), traditional(traditional) {
    const auto& [norm, open, low_norm, widen, key_norm, to_latents, to_values, close, after] = parts;
    want(by.values_in_keys && by.groups == 1, "values are the first numbers of the one key there is");
    want(to_latents.count() == by.heads && to_values.count() == by.heads && to_latents.width() == latent() && to_values.width() == latent(),
         "each head has a matrix from and to latents");
    want(open.size() == 2 && open[1].outputs() == by.keys.size, "there are two matrices to open with, and one makes keys");
    want(widen || !low_norm, "a norm of what queries are made of has a matrix behind it");
    want_closing(close, by.heads * to_values.outputs(), after);
    for (const Matrix& matrix : open) want_matrix(matrix, width(), "a matrix must be a single one, as wide as x");
    if (widen) want_matrix(*widen, open[0].outputs(), "a matrix must be a single one, as wide as what it multiplies");
    want((widen ? *widen : open[0]).outputs() == by.heads * query(), "there is a query for each head, as long as its content and the rest of a key");
    weights.add(norm, width());
    for (const Matrix& matrix : open) weights.add(matrix);
    if (low_norm) weights.add(low_norm, open[0].outputs());
    if (widen) weights.add(*widen);
    weights.add(MaybeNorm(key_norm), latent());
    weights.add(to_latents), weights.add(to_values), weights.add(close), weights.add(after, width());
  }
  int width() const override { return parts.close.outputs(); }
  int latent() const { return by.values.size; }
  int position() const { return by.keys.size - latent(); }
  int content() const { return parts.to_latents.outputs(); }
  int query() const { return content() + position(); }

  bool remembers() const override { return true; }
  Remembered remember(const Memory& memory, Making& made) const override {
    Attending of(by, Shape{made.rows, made.width});
    want(std::holds_alternative<Lanes>(memory), "one that attends must have lanes");
    const auto& [table, factors, lanes, bases, beside] = std::get<Lanes>(memory);
    want(!table || table->shape(-1) <= position(), "no more turns than there are numbers that carry position");
    of.add_extras(table, {}, {}, made.in), of.add_factors(factors, made.in);
    of.write_to(lanes, made.starts, made.counts, bases, made.first, beside, made.in, made.shapes, made.types);
    return of;
  }
  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const override;

 private:
  struct Weighed {
    MaybeRun norm, low_norm, key_norm;
    std::vector<mk_matrix> open;
    std::optional<mk_matrix> widen;
    ByHeads to_latents, to_values;
    Closing close;
  };
  struct Job;
  mutable std::shared_ptr<const Weighed> weighed_;
};

struct Latent::Job {
  const Latent* by;  // the node holds it, and `a.row`
  std::shared_ptr<const Weighed> weighed;
  mk_attention a{};
  Factors factors;

  void run(const float* x, const float* to, float* y, int rows) {
    const size_t heads = a.heads, size = a.size, values = by->parts.to_values.outputs();
    const Scratch keys = scratch(rows, size), queries = scratch(rows, heads * size), seen = scratch(rows, heads * by->latent());
    open(x, queries.get(), keys.get(), rows);
    mk_attention done = a;
    done.turns = nullptr;
    done.queries = {queries.get(), (ptrdiff_t)(heads * size * a.width), (ptrdiff_t)size, (ptrdiff_t)(heads * size)};
    done.new_keys = {keys.get(), (ptrdiff_t)(size * a.width), (ptrdiff_t)size, (ptrdiff_t)size};
    done.out = seen.get();
    mk_attend(&done);
    const Scratch read = scratch(rows, heads * values);
    weighed->to_values(seen.get(), by->latent(), read.get(), values, rows);
    weighed->close.run(read.get(), to, y, rows);
  }

 private:
  // Queries [rows, heads, key] and keys [rows, key], as they meet.
  void open(const float* x, float* queries, float* keys, int rows) const {
    const auto& [norm, low_norm, key_norm, open, widen, to_latents, to_values, close] = *weighed;
    const size_t k = by->width(), size = a.size, latent = by->latent(), low = open[0].n, query = by->query();
    const Scratch normed = norm ? scratch(rows, k) : nullptr, first = scratch(rows, low), made = scratch(rows, size);
    const Scratch wide = widen ? scratch(rows, a.heads * query) : nullptr;
    if (norm) (*norm)(x, nullptr, normed.get(), rows, (int)k);
    const mk_output to[] = {{first.get(), low, nullptr}, {made.get(), size, nullptr}};
    mk_products(open.data(), to, 2, norm ? normed.get() : x, k, rows);
    if (low_norm) (*low_norm)(first.get(), nullptr, first.get(), rows, (int)low);
    const mk_output widened = {wide.get(), a.heads * query, nullptr};
    if (widen) mk_products(&*widen, &widened, 1, first.get(), low, rows);
    float* asked = widen ? wide.get() : first.get();
    multiply(asked, a.heads * query);
    to_latents(asked, query, queries, size, rows);
    place(asked + by->content(), query, queries + latent, size, a.heads, rows);
    const Scratch latents = scratch(rows, latent);
    key_norm->from(made.get(), (ptrdiff_t)size, nullptr, latents.get(), rows, (int)latent);
    for (int r = 0; r < rows; r++) std::copy_n(latents.get() + r * latent, latent, keys + r * size);
    place(made.get() + latent, size, keys + latent, size, 1, rows);
  }

  void multiply(float* queries, size_t all) const {
    for (int b = 0; b < a.rows && factors.data; b++)
      for (int token = 0; token < a.width; token++)
        for (size_t i = 0; i < all; i++) queries[((size_t)b * a.width + token) * all + i] *= factors.data[b * factors.row + token];
  }

  // The numbers that carry position, turned, from heads `wide` floats apart to others.
  void place(const float* x, size_t wide, float* y, size_t apart, size_t heads, int rows) const {
    const size_t size = by->position(), width = a.width;
    const Scratch turned = a.turns ? scratch(rows, heads * size) : nullptr;
    const mk_heads from = {x, (ptrdiff_t)(width * heads * wide), (ptrdiff_t)wide, (ptrdiff_t)(heads * wide), a.rows, (int)heads, a.width, (int)size};
    if (a.turns) mk_rope_turn(from, a.turns, a.turns_row, a.pairs, by->traditional, turned.get());
    for (size_t r = 0; r < (size_t)rows; r++)
      for (size_t h = 0; h < heads; h++) {
        const float* at = a.turns ? turned.get() + ((r / width * heads + h) * width + r % width) * size : x + (r * heads + h) * wide;
        std::copy_n(at, size, y + (r * heads + h) * apart);
      }
  }
};

Sublayer::Run Latent::ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const {
  const auto weighed = once(weighed_, from, [&] {
    Weighed w;
    w.norm = take(parts.norm, from), w.open = take(parts.open, from), w.low_norm = take(parts.low_norm, from);
    if (parts.widen) w.widen = take(*parts.widen, from);
    w.key_norm = parts.key_norm.take(from);
    w.to_latents = {turned_over(take(parts.to_latents, from)), by.heads}, w.to_values = {take(parts.to_values, from), by.heads};
    w.close = {take(parts.close, from), {}, share, summing};
    w.close.after = take(parts.after, from);
    return w;
  });
  auto job = std::make_shared<Job>(Job{this, weighed, {}, {}});
  const Attending& attending = std::get<Attending>(of);
  attending.set(job->a, in, out, from.stream);
  job->factors = attending.factors_of(in, from.stream);
  return [job](const float* x, const float* to, float* y, int rows) { job->run(x, to, y, rows); };
}

// x [rows, heads, tokens, in] -> [rows, heads, tokens, out]
class Products : public Node {
 public:
  Products(mx::Stream stream, Matrix stack, bool back) : Node(stream), stack_(std::move(stack)), back_(back) {}
  const char* name() const override { return "ModelkitByHeads"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    const Array x = dense(in[0], stream());
    size_t at = 1;
    mk_matrix stack = stack_.take(in, at, stream());
    if (back_) stack = turned_over(stack);
    allocate(out[0]);
    dispatch(stream(), [stack, heads = x.shape(1), tokens = (size_t)x.shape(2), rows = x.shape(0), x = x.data<float>(), y = out[0].data<float>()] {
      std::vector<mk_asked> asked;
      for (int h = 0; h < heads; h++)
        for (size_t b = 0; b < (size_t)rows; b++)
          for (size_t t = 0; t < tokens; t++) {
            const size_t place = (b * heads + h) * tokens + t;
            asked.push_back({h, x + place * stack.k, y + place * stack.n});
          }
      mk_ask(&stack, asked.data(), (int)asked.size());
    });
  }

 private:
  Matrix stack_;
  bool back_;
};

Array by_heads(const Array& x, const Matrix& stack, bool back) {
  want_float(x, "x");
  const int in = back ? stack.outputs() : stack.width();
  check(x.ndim() == 4 && x.shape(1) == stack.count() && x.shape(3) == in, "x must be [rows, heads, tokens, numbers], as the stack has heads and numbers");
  Arrays inputs{x};
  stack.add_inputs(inputs);
  const mx::Shape shape{x.shape(0), x.shape(1), x.shape(2), back ? stack.width() : stack.outputs()};
  return Array(shape, mx::float32, std::make_shared<Products>(processor(), stack, back), std::move(inputs));
}

void define(nb::module_& m) {
  m.def("by_heads", &by_heads, nb::arg("x"), nb::arg("stack"), nb::arg("back"));
  m.def("latent", [](const MaybeNorm& norm, const std::vector<Matrix>& open, const MaybeNorm& low_norm, const std::optional<Matrix>& widen,
                     const Norm& key_norm, const Matrix& to_latents, const Matrix& to_values, const Attention& by, bool traditional,
                     const Matrix& close, const MaybeNorm& after) {
    return Part{std::make_shared<Latent>(Parts{norm, open, low_norm, widen, key_norm, to_latents, to_values, close, after}, by, traditional)};
  }, nb::arg("norm").none(), nb::arg("open"), nb::arg("low_norm").none(), nb::arg("widen").none(), nb::arg("key_norm"), nb::arg("to_latents"),
     nb::arg("to_values"), nb::arg("attention"), nb::arg("traditional"), nb::arg("close"), nb::arg("after").none());
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
