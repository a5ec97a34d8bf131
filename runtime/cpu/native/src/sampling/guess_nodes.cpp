// A small decoder from ids to ids in one node: several tokens drawn one behind the other, each from what the network makes
// of the one before (drafts), or one behind each token that is read (drafts that are judged). What it takes through the
// graph by itself is a fraction of what a step takes there.
#include "products/tables.h"
#include "rows/activations.h"
#include "rows/softmax.h"
#include "sampling/biases_nodes.h"
#include "sampling/draw_nodes.h"
#include "sampling/penalties_nodes.h"
#include "sublayers/chain.h"
#include <cmath>

namespace modelkit {
namespace {
// What stands before the first sublayer and behind the last.
class Ends {
 public:
  Ends(Matrix table, float scale, const MaybeNorm& norm, Matrix head, float times, float cap)
      : table(std::move(table)), head(std::move(head)), scale(scale), times(times), cap(cap), norm(norm) {
    want(this->table.count() == 1 && this->table.outputs() > 0, "a table is one matrix, and has rows");
    want_matrix(this->head, width(), "a head is one matrix, as wide as the table");
    weights.add(this->table), weights.add(norm, width()), weights.add(this->head);
  }
  int width() const { return table.width(); }

  Matrix table, head;
  float scale;  // of what the table has
  float times, cap;  // logits are multiplied, and then bent: cap * tanh(x / cap); 0 for no cap
  MaybeNorm norm;
  Weights weights;

  void bend(float* logits, size_t rows) const {
    const int ids = head.outputs();
    if (times != 1)
      for (size_t i = 0; i < rows * ids; i++) logits[i] *= times;
    if (cap) mk_softcap_rows(cap, logits, ids, logits, (int)rows, ids);
  }
};

// Of all rows together.
struct Plan {
  std::shared_ptr<const Ends> ends;
  std::vector<Links> passes;  // the first reads what is there, each of the others a token that was drawn
  int rows, width, steps, ids;  // tokens of the widest row; passes, and from the first of how many ids is drawn
  bool each;                    // one pass, and behind each of its tokens is drawn
  bool looks;                   // whether what is drawn from are numbers; of one pass
  Ints counts;
  std::shared_ptr<const Draws> by;  // NULL: the likeliest
  std::vector<Key> keys;            // [steps][rows], or [rows][width]
  std::shared_ptr<const Penalties> penalties;  // behind each token that is read, what is past stands before all; else it is all that is read. NULL: none
  std::shared_ptr<const Biases> biases;        // NULL: none
  int columns() const { return each ? width : 1; } // drawn by a pass, of each row
};

struct Job {
  std::shared_ptr<const Plan> plan;
  std::vector<Runs> runs;
  mk_matrix table, head;
  MaybeRun norm;
  const int32_t* read;
  int32_t* drawn;
  bool* broken;  // [rows][columns]; NULL where nobody looks

  void run() const {
    const Room room;
    const Plan& p = *plan;
    const size_t width = (size_t)table.k, tokens = (size_t)p.rows * p.width;
    const size_t judged = (size_t)p.rows * p.columns();
    const Scratch x = scratch(tokens, width), logits = scratch(judged, head.n);
    std::vector<int64_t> ids(read, read + tokens);
    std::vector<int32_t> next(judged);
    for (int pass = 0; pass < p.steps; pass++) {
      const size_t rows = pass ? p.rows : tokens;
      mk_table_rows(&table, ids.data(), (int)rows, x.get());
      if (p.ends->scale != 1)
        for (size_t i = 0; i < rows * width; i++) x[i] *= p.ends->scale;
      run_all(p.passes[pass], runs[pass], x.get(), x.get(), rows);
      if (!pass && !p.each) keep_newest(x.get(), width);
      if (norm) (*norm)(x.get(), nullptr, x.get(), judged, (int)width);
      const mk_output to = {logits.get(), (size_t)head.n, nullptr};
      mk_products(&head, &to, 1, x.get(), width, judged);
      p.ends->bend(logits.get(), judged);
      if (broken)
        for (size_t i = 0; i < judged; i++) broken[i] = !numbers(logits.get() + i * head.n, head.n);
      if (p.penalties && p.each) p.penalties->apply(read, logits.get(), p.width, head.n);
      if (p.penalties && !p.each) p.penalties->apply_behind(drawn, p.steps, pass, logits.get(), head.n);
      if (p.biases) p.biases->apply(logits.get(), p.columns(), head.n);
      if (p.by) p.by->draw(logits.get(), head.n, p.keys.data() + (size_t)pass * p.rows, next.data(), p.columns(), p.ids);
      else mk_likeliest(logits.get(), head.n, next.data(), judged, p.ids);
      ids.assign(next.begin(), next.end());
      for (size_t i = 0; i < judged; i++) drawn[i * p.steps + pass] = next[i];
    }
  }

 private:
  // An id that is forbidden may have -inf.
  static bool numbers(const float* logits, int count) {
    bool all = true;
    for (int i = 0; i < count; i++) all &= logits[i] < INFINITY;
    return all;
  }

  // Of what each row has read, the last token's.
  void keep_newest(float* x, size_t width) const {
    for (int b = 0; b < plan->rows; b++) {
      const size_t from = (size_t)b * plan->width + plan->counts[b] - 1;
      std::copy_n(x + from * width, width, x + (size_t)b * width); // never behind the row it is read from
    }
  }
};

class Guess : public Node {
 public:
  Guess(mx::Stream stream, std::shared_ptr<const Plan> plan, int weights_at) : Node(stream), plan_(std::move(plan)), weights_at_(weights_at) {}
  const char* name() const override { return "ModelkitGuess"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    hold_inputs_once(in, out);
    const Ends& ends = *plan_->ends;
    Taken from = ends.weights.take(in, weights_at_, stream());
    Job job{plan_, {}, take(ends.table, from), {}, take(ends.norm, from), dense(in[0], stream()).data<int32_t>(), nullptr, nullptr};
    job.head = take(ends.head, from);
    for (const Links& links : plan_->passes) job.runs.push_back(ready(links, in, out, stream()));
    allocate(out[0]);
    job.drawn = out[0].data<int32_t>();
    if (plan_->looks) {
      allocate(out[1]);
      job.broken = out[1].data<bool>();
    }
    dispatch(stream(), [job = std::move(job)] { job.run(); });
  }

 private:
  std::shared_ptr<const Plan> plan_;
  int weights_at_;
};

// Room for the tokens that are read, and for all that are drawn but the last.
void want_room(const Memory& memory, const Ints& starts, const Ints& counts, int steps) {
  if (std::holds_alternative<States>(memory)) return want(steps == 1, "what is folded is a step's own tokens");
  if (std::holds_alternative<Seen>(memory)) return;
  want(std::holds_alternative<Lanes>(memory), "those that remember must attend or fold");
  const auto& [table, factors, lanes, bases, beside] = std::get<Lanes>(memory);
  want(!factors || steps == 1, "factors are of a step's own tokens");
  want(!beside && !lanes.empty() && lanes[0].ndim() == 4 && bases.size() == starts.size(), "tokens must be written to the lanes");
  for (size_t b = 0; b < starts.size(); b++)
    want((int64_t)starts[b] - bases[b] + counts[b] + steps - 1 <= lanes[0].shape(2), "there are slots for all tokens");
}

// The table of a pass behind the first, among the inputs.
int joined(const Maybe& table, const Shape& shape, int width, Arrays& in) {
  if (!table) return -1;
  want_float(*table, "the table of turns");
  want(table->ndim() == 3 && (table->shape(0) == 1 || table->shape(0) == shape.rows) && table->shape(1) == shape.width && table->shape(2) == width,
       "a table of turns is [rows or 1, tokens, 2 * pairs], as wide as that of the first pass");
  const auto known = std::find_if(in.begin(), in.end(), [&](const Array& x) { return x.id() == table->id(); });
  const int at = (int)(known - in.begin());
  if (known == in.end()) in.push_back(*table);
  return at;
}

// ids [rows, tokens], of each row the first counts[b], which stand from starts[b] on in its memory -> int32 [rows, drawn], or
// for 0 int32 [rows, tokens], one behind each token; and what each layer remembers as it is then. tables: of the turns of
// the tokens behind them, by memory, where there are several passes. ids_drawn: of the head's, from how many is drawn; 0 for all. by: None for the likeliest;
// positions: of each row's first draw. penalties: what ids before the step take off; biases: what is added then. looks: with bool [rows, tokens] behind the tokens, whether one was drawn from no numbers.
Arrays guess(const Chain& chain, const Held<Ends>& held_ends, const Array& ids, const Ints& starts, const Ints& counts, int first,
             int drawn, const std::vector<Memory>& memories, const std::vector<Maybe>& tables, int ids_drawn,
             const Held<Draws>* draws, const std::vector<uint32_t>& positions, bool looks, const Held<Penalties>* penalties,
             const Held<Biases>* biases) {
  const auto& ends = held_ends.by;
  const std::shared_ptr<const Draws> by = draws ? draws->by : nullptr;
  want(ids.dtype() == mx::int32 && ids.ndim() == 2 && drawn >= 0, "ids are int32 [rows, tokens], and so many are drawn");
  const int steps = drawn ? drawn : 1;
  const Shape shape{ids.shape(0), ids.shape(1)};
  want(chain.width() == ends->width() && chain.output_width() == ends->width(), "a table is as wide as the sublayers");
  want((int)starts.size() == shape.rows && (int)counts.size() == shape.rows, "there is a start and a count for each row");
  want(std::all_of(counts.begin(), counts.end(), [&](int count) { return count > 0 && count <= shape.width; }), "each row reads a token or more");
  want(tables.size() == (steps > 1 ? memories.size() : 0), "there is a table, or none, for each memory, if there are several passes");
  want(ids_drawn >= 0 && ids_drawn <= ends->head.outputs(), "drawn is from the head's ids");
  want(!by || (by->rows() == (size_t)shape.rows), "there is a position, and what is wanted, for each row");
  for (const Memory& memory : memories) want_room(memory, starts, counts, steps);

  want(!looks || !drawn, "what is looked at is one pass");
  want(!penalties || penalties->by->rows() == (size_t)shape.rows, "there is a past for each row");
  want(!biases || biases->by->rows() == (size_t)shape.rows, "there are biases for each row");

  Arrays in{ids};
  std::vector<mx::Shape> shapes{{shape.rows, drawn ? drawn : shape.width}};
  std::vector<mx::Dtype> types{mx::int32};
  if (looks) shapes.push_back(shapes[0]), types.push_back(mx::bool_);
  auto plan = std::make_shared<Plan>(Plan{ends, {}, shape.rows, shape.width, steps, ids_drawn ? ids_drawn : ends->head.outputs(), !drawn, looks, counts, by, {}, penalties ? penalties->by : nullptr, biases ? biases->by : nullptr});
  plan->passes.push_back(chain.links(shape.rows, shape.width, starts, counts, first, memories, in, shapes, types));
  Ints at;
  for (size_t i = 0; i < tables.size(); i++) {
    const auto* seen = std::get_if<Seen>(&memories[i]);
    const Maybe& read = seen ? std::get<0>(*seen) : std::get<0>(std::get<Lanes>(memories[i]));
    want(read.has_value() == tables[i].has_value(), "all passes turn, or none");
    at.push_back(joined(tables[i], {shape.rows, steps - 1}, read ? read->shape(2) : 0, in));
  }
  for (int pass = 1; pass < steps; pass++) {
    Links links = plan->passes[0];
    size_t next = 0;
    for (Link& link : links)
      if (auto* attending = std::get_if<Attending>(&link.of)) link.of = attending->behind(pass - 1, at[next++]);
    plan->passes.push_back(std::move(links));
  }
  if (by)
    for (int pass = 0; pass < steps; pass++) {
      std::vector<uint32_t> here(positions);
      for (uint32_t& position : here) position += pass;
      const std::vector<Key> keys = by->keys(here, plan->columns());
      plan->keys.insert(plan->keys.end(), keys.begin(), keys.end());
    }
  const int weights_at = ends->weights.join(in);
  return Array::make_arrays(std::move(shapes), types, std::make_shared<Guess>(processor(), std::move(plan), weights_at), in);
}

void define(nb::module_& m) {
  nb::class_<Held<Ends>>(m, "Ends").def("__init__", &hold<Ends, Matrix, float, MaybeNorm, Matrix, float, float>, nb::arg("table"), nb::arg("scale"),
                                        nb::arg("norm").none(), nb::arg("head"), nb::arg("times"), nb::arg("cap"));
  m.def("guess", &guess, nb::arg("chain"), nb::arg("ends"), nb::arg("ids"), nb::arg("starts"), nb::arg("counts"), nb::arg("first"),
        nb::arg("drawn"), nb::arg("memories"), nb::arg("tables"), nb::arg("ids_drawn"), nb::arg("by").none(), nb::arg("positions"),
        nb::arg("looks"), nb::arg("penalties").none() = nb::none(), nb::arg("biases").none() = nb::none());
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
