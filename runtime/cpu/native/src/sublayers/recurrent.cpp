// The sublayer that folds over tokens: a norm, products of one x, a convolution, a rule by which its answers enter the state,
// a norm under a gate, the product that closes, a norm behind it, and what all that is added to.
#include "rows/activations.h"
#include "sublayers/rules.h"

#include <numeric>


namespace modelkit {
namespace {
// What an answer passes under its gate: a norm along each of its parts, or act(gate) * answer where there is none.
struct Gating {
  Maybe weight;
  float eps;
  int parts;
  bool gate_first, sigmoid;
  mk_act act;

  Gating(const Maybe& weight, float eps, int parts, bool gate_first, bool sigmoid, int act)
      : weight(weight), eps(eps), parts(parts), gate_first(gate_first), sigmoid(sigmoid), act((mk_act)act) {
    want(parts > 0, "an answer has parts");
    want(act >= 0 && act < MK_ACTS, "no such activation");
  }
};

// open: matrices of what the rule mixes, of the answer's gate, and of the rule's gates; or one with the rows of the answer's
// gate, of what is mixed (the other way round where that leads), and of the rule's gates. widen: for each of them, what makes its
// part of what it gives, or nothing; or empty.
class Recurrent : public Sublayer {
 public:
  MaybeNorm norm;
  std::vector<Matrix> open;
  std::vector<std::optional<Matrix>> widen;
  Maybe scales;  // what one matrix gives is multiplied by them, number by number
  Conv conv;
  std::shared_ptr<const Rule> rule;
  Gating gating;
  Matrix close;
  MaybeNorm after;

  Recurrent(const MaybeNorm& norm, const std::vector<Matrix>& open, const std::vector<std::optional<Matrix>>& widen, const Maybe& scales, const Conv& conv, std::shared_ptr<const Rule> rule,
       const Gating& gating, const Matrix& close, const MaybeNorm& after)
      : norm(norm), open(open), widen(widen), scales(scales), conv(conv), rule(std::move(rule)), gating(gating), close(close), after(after) {
    const Rule& by = *this->rule;
    std::vector<int> sizes{by.channels, by.answers};
    sizes.insert(sizes.end(), by.gates.begin(), by.gates.end());
    want(open.size() == 1 || open.size() == sizes.size(), "a fold opens with one matrix, or with one for each of its parts");
    want(widen.empty() || (open.size() > 1 && widen.size() == open.size()), "what widens a fold's parts is there for each, or for none");
    for (size_t i = 0; open.size() > 1 && i < open.size(); i++) want(gives(i) == sizes[i], "a part of a fold has a matrix of its size");
    want(open.size() > 1 || open[0].outputs() == std::accumulate(sizes.begin(), sizes.end(), 0), "a fold's one matrix has rows for all of its parts");
    want(!scales || (open.size() == 1 && scales->shape() == mx::Shape{open[0].outputs()}),
         "there is a scale for each number that one matrix gives");
    want(conv.filters.shape(1) == by.channels, "a fold's convolution has the channels that its rule mixes");
    want(by.answers % gating.parts == 0, "an answer must divide into its parts");
    want(!gating.weight || (int)gating.weight->size() == by.answers || (int)gating.weight->size() == by.answers / gating.parts,
         "the weight of the norm under the gate is as long as the answer, or as one of its parts");
    want_closing(close, by.answers, after);
    weights.add(norm, width());
    for (const Matrix& matrix : open) {
      want_matrix(matrix, width(), "a matrix must be a single one, as wide as x");
      weights.add(matrix);
    }
    for (size_t i = 0; i < widen.size(); i++) {
      if (!widen[i]) continue;
      want_matrix(*widen[i], open[i].outputs(), "what widens a part is one matrix, as wide as what it is made of");
      weights.add(*widen[i]);
    }
    if (scales) weights.add(*scales);
    conv.add_to(weights);
    by.add_to(weights);
    if (gating.weight) weights.add(*gating.weight);
    weights.add(close), weights.add(after, width());
  }
  int width() const override { return close.outputs(); }
  int gives(size_t part) const { return part < widen.size() && widen[part] ? widen[part]->outputs() : open[part].outputs(); }
  bool remembers() const override { return true; }

  Remembered remember(const Memory& memory, Making& made) const override {
    want(std::holds_alternative<States>(memory), "one that folds must have states");
    mx::Shape state{made.rows};
    state.insert(state.end(), rule->state.begin(), rule->state.end());
    std::vector<int> products;
    for (size_t i = 0; i < open.size(); i++) products.push_back(gives(i));
    return folds(std::get<States>(memory), {{made.rows, conv.taps() - 1, rule->channels}, state}, products, made);
  }
  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const override;
};

// What its kernels need. One step after the other, each for all rows.
struct Job {
  const Recurrent* by;  // the node holds these two
  const Folding* of;
  MaybeRun norm;
  std::vector<mk_matrix> open;
  std::vector<std::optional<mk_matrix>> widen;
  const float* scales = nullptr;
  mk_conv conv{};
  Rule::Run rule;
  mk_gated_norm gating{};
  Closing close;
  const float* state;
  float* after;
  std::vector<float*> asked;  // where opening products go that are asked for

  void run(const float* x, const float* to, float* y, int rows) {
    const int k = by->width(), answers = by->rule->answers;
    const Scratch normed = norm ? scratch(rows, k) : nullptr, mixed = scratch(rows, conv.channels), raw = scratch(rows, answers);
    std::vector<Scratch> room;
    if (norm) (*norm)(x, nullptr, normed.get(), rows, k);
    const std::vector<mk_tokens> parts = project(norm ? normed.get() : x, room, rows);
    conv.x = parts[0], conv.y = mixed.get();
    mk_conv_rows(conv);
    rule({of_rows(mixed.get(), conv.channels), &parts[2], state, raw.get(), after, of->starts.data(), conv.counts, of->rows, of->width});
    const Scratch seen = scratch(rows, answers);
    if (by->gating.weight) {
      gating.x = of_rows(raw.get(), answers), gating.gate = parts[1], gating.y = seen.get();
      mk_gated_norm_rows(gating);
    } else {
      mk_gate_rows({by->gating.act, 0, 0}, parts[1].at, parts[1].token, raw.get(), answers, seen.get(), rows, answers);
    }
    close.run(seen.get(), to, y, rows);
  }

 private:
  // Tokens `apart` floats from each other.
  mk_tokens of_rows(const float* data, ptrdiff_t apart) const { return {data, apart * of->width, apart}; }

  // What is mixed, the answer's gate, the rule's gates.
  std::vector<mk_tokens> project(const float* x, std::vector<Scratch>& room, int rows) const {
    std::vector<mk_output> to, first; // what the parts become, and what the opening matrices give
    for (size_t i = 0; i < open.size(); i++) {
      const int size = by->gives(i);
      if (asked.empty()) room.push_back(scratch(rows, size));
      to.push_back({asked.empty() ? room.back().get() : asked[i], (size_t)size, nullptr});
      first.push_back(to.back());
      if (i >= widen.size() || !widen[i]) continue;
      room.push_back(scratch(rows, open[i].n));
      first.back() = {room.back().get(), (size_t)open[i].n, nullptr};
    }
    mk_products(open.data(), first.data(), (int)open.size(), x, (size_t)open[0].k, rows);
    for (size_t i = 0; i < widen.size(); i++)
      if (widen[i]) mk_products(&*widen[i], &to[i], 1, first[i].y, first[i].ld, rows);
    if (scales)
      for (size_t row = 0; row < (size_t)rows; row++)
        for (size_t i = 0; i < to[0].ld; i++) to[0].y[row * to[0].ld + i] *= scales[i];
    std::vector<mk_tokens> parts;
    if (open.size() > 1) {
      for (const mk_output& each : to) parts.push_back(of_rows(each.y, each.ld));
      return parts;
    }
    const Rule& rule = *by->rule;
    int at = rule.answers + rule.channels;
    parts = {of_rows(to[0].y + (rule.leads ? 0 : rule.answers), to[0].ld), of_rows(to[0].y + (rule.leads ? rule.channels : 0), to[0].ld)};
    for (int size : rule.gates) parts.push_back(of_rows(to[0].y + at, to[0].ld)), at += size;
    return parts;
  }
};

Sublayer::Run Recurrent::ready(Taken from, const Remembered& remembered, const Arrays& in, Arrays& out) const {
  auto job = std::make_shared<Job>();
  const Folding& of = std::get<Folding>(remembered);
  auto before = [&](int state) { return dense(in[of.before + state], from.stream).data<float>(); };
  auto place = [&](int at) { return allocate(out[at]), out[at].data<float>(); };
  // A rule reads each number of a state before it writes it, so the state may stay where it is: it is large, and what is new
  // has to be asked of the system page by page. (A convolution's inputs move along, and are few.)
  auto in_place = [&](int state) {
    if (!of.own) return place(of.after + state);
    write_into(in[of.before + state], out[of.after + state]);
    return out[of.after + state].data<float>();
  };
  job->by = this, job->of = &of;
  job->norm = take(norm, from), job->open = take(open, from);
  for (const auto& each : widen) job->widen.push_back(each ? std::optional(take(*each, from)) : std::nullopt);
  job->scales = scales ? from.floats() : nullptr;
  job->conv = conv.take(of, from, before(0), place(of.after));
  job->conv.silu = rule->silu;
  job->rule = rule->take(from), job->state = before(1), job->after = in_place(1);
  mk_gated_norm& g = job->gating;
  g.weight = gating.weight ? from.floats() : nullptr, g.eps = gating.eps, g.rows = of.rows, g.tokens = of.width, g.width = rule->answers;
  g.groups = gating.parts, g.shared = gating.weight && (int)gating.weight->size() != rule->answers;
  g.gate_first = gating.gate_first, g.sigmoid = gating.sigmoid;
  for (size_t i = 0; of.products >= 0 && i < open.size(); i++) job->asked.push_back(place(of.products + (int)i));
  job->close.w = take(close, from), job->close.after = take(after, from), job->close.share = share, job->close.summing = summing;
  return [job](const float* x, const float* to, float* y, int rows) { job->run(x, to, y, rows); };
}

void define(nb::module_& m) {
  m.def("recurrent", [](const MaybeNorm& norm, const std::vector<Matrix>& open, const Maybe& scales, const Array& filters,
                      const Maybe& bias, const Held<Rule>& rule, const Maybe& weight, float eps, int parts, bool gate_first,
                      bool sigmoid, const Matrix& close, const MaybeNorm& after, int act,
                      const std::vector<std::optional<Matrix>>& widen) {
    const Gating gating(weight, eps, parts, gate_first, sigmoid, act);
    return Part{std::make_shared<Recurrent>(norm, open, widen, scales, Conv(filters, bias), rule.by, gating, close, after)};
  }, nb::arg("norm").none(), nb::arg("open"), nb::arg("scales").none(), nb::arg("filters"), nb::arg("bias").none(),
     nb::arg("rule"), nb::arg("weight").none(), nb::arg("eps"), nb::arg("parts"), nb::arg("gate_first"), nb::arg("sigmoid"),
     nb::arg("close"), nb::arg("after").none(), nb::arg("act") = (int)MK_SILU,
     nb::arg("widen") = std::vector<std::optional<Matrix>>{});
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
