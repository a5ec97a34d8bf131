// The sublayer that attends: a norm, the products that queries, keys and values are, norms of their heads, before they
// turn or behind, factors of queries, attention over layer memory, gates of what was seen, the product that closes, a norm
// behind it, and what all that is added to.
#include "attention/attending.h"
#include "rows/activations.h"
#include "rows/rope.h"
#include "sublayers/sublayers.h"

namespace modelkit {
namespace {
// What becomes of heads between the products and what they see.
struct Heads {
  MaybeNorm query, key, value;  // norms along each head
  bool together;                // those of queries and of keys run over all heads
  bool turned;                  // they come behind the turn
  bool gated;                   // with each query comes a gate of its size, whose sigmoid multiplies what the head has seen
  float values = 1, keys = 1;   // what these are multiplied by
  bool by_head = false;         // one matrix makes a head's query, key and value, then those of the next one

  bool plain() const { return !query && !key && !value && !gated && values == 1 && keys == 1; }
};

// open: matrices of queries, keys and values, or one with their rows in this order; two where raw keys are the values, too. Of
// one that reads what another sublayer has written: of queries alone. low: what is added to products of these matrices.
class Attend : public Sublayer {
 public:
  MaybeNorm norm;
  std::vector<Matrix> open;
  Heads heads;
  Attention by;
  Maybe sinks;  // one more logit per head
  bool reads;
  Matrix close;
  MaybeNorm after;
  std::optional<Matrix> gate;  // with as many outputs as heads, or as they see numbers: what was seen times act(x gate)
  mk_act act;
  Low low;

  Attend(const MaybeNorm& norm, const std::vector<Matrix>& open, const Heads& heads, const Attention& by, const Maybe& sinks, bool reads,
         const Matrix& close, const MaybeNorm& after, const std::optional<Matrix>& gate, int act,
         const Low& low)
      : norm(norm), open(open), heads(heads), by(by), sinks(sinks), reads(reads), close(close), after(after), gate(gate),
        act((mk_act)act), low(low) {
    want(act >= 0 && act < MK_ACTS, "no such activation");
    want(!by.values_in_keys, "values that lie in the keys have no matrix");
    if (reads) want(open.size() == 1 && !heads.key && !heads.value && heads.keys == 1, "one that reads what is there makes queries alone");
    else want(open.size() >= 1 && open.size() <= 3, "queries, keys and values have up to three matrices");
    want(reads || open.size() > 1 || heads.plain(), "heads with norms or gates have matrices of their own");
    want(!heads.by_head || (!reads && open.size() == 1 && by.groups == by.heads && by.keys.size == by.values.size),
         "heads one after the other have one matrix, and a key and a value of its size for each query");
    want(open.size() != 2 || by.keys.size == by.values.size, "keys that are values are as long as they");
    want(!heads.gated || by.keys.size == by.values.size, "a gate is as long as a query, and as what a head sees");
    want(!heads.gated || !heads.turned, "norms behind the turn know no gates");
    int outputs = 0;
    want_low(low, open);
    weights.add(norm, input_width());
    for (const Matrix& matrix : open) {
      want_matrix(matrix, input_width(), "a matrix must be a single one, as wide as x");
      weights.add(matrix);
      outputs += matrix.outputs();
    }
    modelkit::add_to(weights, low);
    want(outputs == asked() + (reads ? 0 : keys() + (open.size() == 2 ? 0 : values())) &&
             (open.size() == 1 || (open[0].outputs() == asked() && open[1].outputs() == keys())),
         "matrices must have as many outputs as there are numbers in all heads");
    want(!heads.together || (!heads.gated && !heads.turned), "norms of all heads together know neither gates nor turns before them");
    for (const MaybeNorm* own : {&heads.query, &heads.key})
      want(!*own || (*own)->parts() == 1 || (!heads.together && !heads.turned), "heads with weights of their own are normed before they turn");
    weights.add(heads.query, heads.together ? queries() : by.keys.size, by.heads);
    weights.add(heads.key, heads.together ? keys() : by.keys.size, by.groups);
    weights.add(heads.value, by.values.size);
    if (sinks) {
      want(sinks->shape() == mx::Shape{by.heads}, "there must be one sink per head");
      weights.add(*sinks);
    }
    want_closing(close, by.heads * by.values.size, after);
    weights.add(close), weights.add(after, width());
    if (gate) {
      want_matrix(*gate, input_width(), "a matrix must be a single one, as wide as x");
      want(!heads.gated && (gate->outputs() == by.heads || gate->outputs() == close.width()),
           "there is one gate, of each head one number, or of each number that it sees");
      weights.add(*gate);
    }
  }
  int width() const override { return close.outputs(); }
  int input_width() const override { return open[0].width(); }
  int queries() const { return by.heads * by.keys.size; }
  int asked() const { return heads.gated ? 2 * queries() : queries(); }  // with what comes with them
  int keys() const { return by.groups * by.keys.size; }
  int values() const { return by.groups * by.values.size; }

  bool remembers() const override { return true; }
  Remembered remember(const Memory& memory, Making& made) const override {
    Attending of(by, Shape{made.rows, made.width});
    if (reads) {
      read(memory, made, of);
      return of;
    }
    want(std::holds_alternative<Lanes>(memory), "one that attends must have lanes");
    const auto& [table, factors, lanes, bases, beside] = std::get<Lanes>(memory);
    of.add_extras(table, {}, {}, made.in), of.add_factors(factors, made.in);
    of.write_to(lanes, made.starts, made.counts, bases, made.first, beside, made.in, made.shapes, made.types);
    return of;
  }
  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const override;

 private:
  // Its weights as kernels take them.
  struct Weighed {
    MaybeRun norm, query_norm, key_norm, value_norm;
    std::vector<mk_matrix> open;
    LowRuns low;
    Closing close;
    const float* sinks;
    std::optional<mk_matrix> gate;
  };

  void read(const Memory& memory, Making& made, Attending& of) const {
    if (const auto* seen = std::get_if<Seen>(&memory)) {
      const auto& [table, factors, donor] = *seen;
      want(donor >= 0 && donor < (int)made.before.size(), "who reads comes behind who writes");
      const auto* writes = std::get_if<Attending>(made.before[donor]);
      want(writes != nullptr, "what is read is keys and values");
      of.add_extras(table, {}, {}, made.in), of.add_factors(factors, made.in);
      return of.see(*writes);
    }
    want(std::holds_alternative<Elsewhere>(memory), "one that reads must know where");
    const auto& [table, factors, lanes, apart, bases] = std::get<Elsewhere>(memory);
    of.add_extras(table, {}, {}, made.in), of.add_factors(factors, made.in);
    Ints stops(made.starts);
    for (size_t b = 0; b < stops.size(); b++) stops[b] += made.counts[b];
    of.read_from(lanes, apart, made.starts, made.counts, bases, made.starts, stops, made.first, made.in);
  }

  struct Job;
  mutable std::shared_ptr<const Weighed> weighed_;
};

// What its kernels need. One step after the other, each for all rows.
struct Attend::Job {
  const Attend* by;  // the node holds it, and `a.row`
  std::shared_ptr<const Weighed> weighed;
  mk_attention a{};
  Factors factors;

  void run(const float* x, const float* to, float* y, int rows) {
    const Heads& heads = by->heads;
    const int k = by->input_width(), all = by->asked() + (by->reads ? 0 : by->keys() + by->values());
    const Scratch normed = weighed->norm ? scratch(rows, k) : nullptr, made = scratch(rows, all), seen = scratch(rows, weighed->close.w.k);
    const Scratch asking = heads.gated && heads.query ? scratch(rows, by->queries()) : nullptr;
    if (weighed->norm) (*weighed->norm)(x, nullptr, normed.get(), rows, k);
    const float* from = normed ? normed.get() : x;
    mk_attention done = a; // passes of a step each turn by their own tables
    Scratch turned[2];
    if (by->open.size() == 1 && !by->reads) project_together(from, made.get(), rows, all, done);
    else project(from, made.get(), asking.get(), rows, done);
    if (factors.data) multiply(done);
    if (heads.turned) norm_turned(done, turned, rows);
    done.out = seen.get();
    mk_attend(&done);
    if (heads.gated)
      mk_gate_rows({MK_SIGMOID, 0, 0}, made.get() + a.size, 2 * a.size, seen.get(), a.size, seen.get(), rows * a.heads, a.size);
    if (weighed->gate) open_by(*weighed->gate, from, seen.get(), rows);
    weighed->close.run(seen.get(), to, y, rows);
  }

 private:
  // Tokens `apart` floats from each other.
  mk_strided heads_at(const float* data, size_t apart, int size) const {
    return {data, (ptrdiff_t)apart * a.width, size, (ptrdiff_t)apart};
  }

  void open_by(const mk_matrix& gate, const float* x, float* seen, int rows) const {
    const int n = gate.n, size = weighed->close.w.k / n;
    const Scratch made = scratch(rows, n);
    const mk_output to = {made.get(), (size_t)n, nullptr};
    mk_products(&gate, &to, 1, x, (size_t)gate.k, rows);
    if (size == 1) return mk_gate_rows({by->act, 0, 0}, made.get(), n, seen, n, seen, rows, n);
    mk_act_rows(by->act, made.get(), n, made.get(), rows, n);
    for (size_t i = 0; i < (size_t)rows * n; i++)
      for (int j = 0; j < size; j++) seen[i * size + j] *= made.get()[i];
  }

  void project_together(const float* x, float* made, int rows, int all, mk_attention& done) const {
    const bool by_head = by->heads.by_head;
    const int key = by_head ? a.size : by->queries(), value = key + (by_head ? a.size : by->keys()), apart = by_head ? 3 * a.size : 0;
    const mk_output to = {made, (size_t)all, nullptr};
    mk_products(weighed->open.data(), &to, 1, x, (size_t)by->input_width(), rows);
    add_low(weighed->low, x, &to, rows);
    done.queries = heads_at(made, all, by_head ? apart : a.size), done.new_keys = heads_at(made + key, all, by_head ? apart : a.size);
    done.new_values = heads_at(made + value, all, by_head ? apart : a.value_size);
  }

  // asking: where normed queries go that come with gates.
  void project(const float* x, float* made, float* asking, int rows, mk_attention& done) const {
    const auto& [norm, query_norm, key_norm, value_norm, open, low, close, sinks, gate] = *weighed;
    const Heads& heads = by->heads;
    const int queries = by->queries(), keys = by->keys(), values = by->values(), asked = by->asked();
    float *of_keys = made + (size_t)rows * asked, *of_values = of_keys + (size_t)rows * keys;
    const mk_output to[] = {{made, (size_t)asked, nullptr}, {of_keys, (size_t)keys, nullptr}, {of_values, (size_t)values, nullptr}};
    mk_products(open.data(), to, (int)open.size(), x, (size_t)by->input_width(), rows);
    add_low(low, x, to, rows);
    const int parts = heads.together ? 1 : a.heads, of_key = heads.together ? 1 : a.groups;
    if (query_norm && !heads.turned) query_norm->from(made, asked / parts, nullptr, asking ? asking : made, rows * parts, queries / parts);
    done.queries = asking ? heads_at(asking, queries, a.size) : heads_at(made, asked, asked / a.heads);
    if (by->reads) return;
    const float* raw = open.size() == 2 ? of_keys : of_values;
    if (value_norm) (*value_norm)(raw, nullptr, of_values, rows * a.groups, a.value_size);
    else if (raw != of_values) std::copy_n(raw, (size_t)rows * values, of_values);
    if (heads.values != 1)
      for (size_t i = 0; i < (size_t)rows * values; i++) of_values[i] *= heads.values;
    if (heads.keys != 1)
      for (size_t i = 0; i < (size_t)rows * keys; i++) of_keys[i] *= heads.keys;
    if (key_norm && !heads.turned) (*key_norm)(of_keys, nullptr, of_keys, rows * of_key, keys / of_key);
    done.new_keys = heads_at(of_keys, keys, a.size), done.new_values = heads_at(of_values, values, a.value_size);
  }

  // Queries, which are nobody else's, where they lie.
  void multiply(const mk_attention& done) const {
    for (int b = 0; b < a.rows; b++)
      for (int token = 0; token < a.width; token++)
        for (int head = 0; head < a.heads; head++) {
          float* q = const_cast<float*>(done.queries.data) + b * done.queries.row + token * done.queries.token + head * done.queries.head;
          for (int i = 0; i < a.size; i++) q[i] *= factors.data[b * factors.row + token];
        }
  }

  // Turned now, by heads, and normed then.
  void norm_turned(mk_attention& done, Scratch turned[2], int rows) const {
    auto one = [&](mk_strided& x, int heads, const MaybeRun& norm, Scratch& room) {
      if (a.turns) {
        room = scratch(rows, heads * a.size);
        const mk_heads from = {x.data, x.row, x.head, x.token, a.rows, heads, a.width, a.size};
        mk_rope_turn(from, a.turns, a.turns_row, a.pairs, a.traditional, room.get());
        x = {room.get(), (ptrdiff_t)heads * a.width * a.size, (ptrdiff_t)a.width * a.size, a.size};
      }
      if (norm) (*norm)(x.data, nullptr, const_cast<float*>(x.data), rows * heads, a.size);
    };
    one(done.queries, a.heads, weighed->query_norm, turned[0]);
    if (!by->reads) one(done.new_keys, a.groups, weighed->key_norm, turned[1]);
    done.turns = nullptr;
  }
};

Sublayer::Run Attend::ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const {
  const auto weighed = once(weighed_, from, [&] {
    Weighed w;
    w.norm = take(norm, from), w.open = take(open, from), w.low = take(low, from);
    w.query_norm = take(heads.query, from), w.key_norm = take(heads.key, from), w.value_norm = take(heads.value, from);
    w.sinks = sinks ? from.floats() : nullptr;
    w.close = {take(close, from), {}, share, summing};
    w.close.after = take(after, from);
    if (gate) w.gate = take(*gate, from);
    return w;
  });
  auto job = std::make_shared<Job>(Job{this, weighed, {}, {}});
  const Attending& attending = std::get<Attending>(of);
  attending.set(job->a, in, out, from.stream);
  job->factors = attending.factors_of(in, from.stream);
  if (weighed->sinks) job->a.sinks = weighed->sinks;
  return [job](const float* x, const float* to, float* y, int rows) { job->run(x, to, y, rows); };
}

void define(nb::module_& m) {
  nb::class_<Heads>(m, "Heads").def("__init__", [](Heads* at, const MaybeNorm& query, const MaybeNorm& key, const MaybeNorm& value, bool together,
                                                   bool turned, bool gated, float values, float keys, bool by_head) {
                                        new (at) Heads{query, key, value, together, turned, gated, values, keys, by_head};
                                      },
                                    nb::arg("query_norm").none(), nb::arg("key_norm").none(), nb::arg("value_norm").none(),
                                    nb::arg("together"), nb::arg("turned"), nb::arg("gated"), nb::arg("values") = 1.0f, nb::arg("keys") = 1.0f,
                                    nb::arg("by_head") = false);
  m.def("attention", [](const MaybeNorm& norm, const std::vector<Matrix>& open, const Heads& heads, const Attention& by, const Maybe& sinks,
                        bool reads, const Matrix& close, const MaybeNorm& after, const std::optional<Matrix>& gate, int act,
                        const Low& low) {
    return Part{std::make_shared<Attend>(norm, open, heads, by, sinks, reads, close, after, gate, act, low)};
  }, nb::arg("norm").none(), nb::arg("open"), nb::arg("heads"), nb::arg("attention"), nb::arg("sinks").none(), nb::arg("reads"),
     nb::arg("close"), nb::arg("after").none(), nb::arg("gate").none() = nb::none(), nb::arg("act") = 0, nb::arg("low") = Low{});
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
