// Whole sublayers one behind the other as one node: each step is the kernel that it would be by itself, so the bits are
// those of the same steps in nodes of their own.
#include "sublayers/chain.h"

#include "products/pairs_nodes.h"

namespace modelkit {
Chain::Chain(const std::vector<Part>& parts) : parts_(parts) {
  want(!parts.empty() && !parts[0].by->beside, "a chain must have sublayers, the first of which has none before it");
  int stream = width(), other = output_width();
  for (const Part& part : parts) {
    want(part.by->width() == stream, "a sublayer of a chain must be as wide as what the one before it gives");
    want(part.by->input_width() == part.by->width(), "a sublayer of a chain reads the stream");
    stream = part.by->output_width();
    want(stream == part.by->width() || !part.by->beside, "what is added beside another does not change how wide the stream is");
    for (int each : {part.by->width(), stream}) {
      if (other == output_width()) other = each;
      want(each == output_width() || each == other, "the stream of a chain has two widths at most");
    }
  }
}

Links Chain::links(int rows, int width, const Ints& starts, const Ints& counts, int first, const std::vector<Memory>& memories,
                   Arrays& in, std::vector<mx::Shape>& shapes, std::vector<mx::Dtype>& types) const {
  Links links;
  links.reserve(parts_.size()); // what is known of one is pointed to
  Making making{rows, width, starts, counts, first, in, shapes, types};
  size_t next = 0;
  for (const Part& part : parts_) {
    links.push_back({part.by, {}});
    if (!part.by->remembers()) continue;
    want(next < memories.size() && width > 0, "those that remember must have a memory each, and x [rows, tokens, width]");
    links.back().of = part.by->remember(memories[next++], making);
    making.before.push_back(&links.back().of);
  }
  want(next == memories.size(), "those that remember must have a memory each");
  for (Link& link : links) link.weights_at = link.by->weights.join(in);
  return links;
}

Runs ready(const Links& links, const Arrays& in, Arrays& out, mx::Stream stream, const mk_members* members) {
  Runs runs;
  runs.reserve(links.size());
  for (const Link& link : links)
    runs.push_back(link.by->ready(link.by->weights.take(in, link.weights_at, stream, members), link.of, in, out));
  return runs;
}

void run_all(const Links& links, const Runs& runs, const float* x, float* y, size_t rows) {
  const Room room;
  const int last = links.back().by->output_width();
  int widest = last;
  for (const Link& link : links) widest = std::max({widest, link.by->width(), link.by->output_width()});
  const float *read = x, *sum = x;
  Scratch copy;   // of what several read, where the first of them writes
  Scratch aside;  // the stream where it has not the width that it ends with
  for (size_t i = 0; i < runs.size(); i++) {
    const Sublayer& by = *links[i].by;
    if (by.output_width() != last && !aside) aside = scratch(rows, widest);
    float* const to = by.output_width() == last ? y : aside.get();
    if (!by.beside) {
      read = sum;
      if (read == to && i + 1 < runs.size() && links[i + 1].by->beside) {
        if (!copy) copy = scratch(rows, widest);
        std::copy_n(to, rows * by.width(), copy.get()), read = copy.get();
      }
    }
    runs[i](read, sum, to, (int)rows), sum = to;
  }
}

namespace {
// x through sublayers one behind the other. in: x, then what its links know of.
class Through : public Node {
 public:
  Through(mx::Stream stream, Links links, std::shared_ptr<const Members> members)
      : Node(stream), links_(std::make_shared<const Links>(std::move(links))), members_(std::move(members)) {}
  const char* name() const override { return "ModelkitSublayers"; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    hold_inputs_once(in, out);
    const float* x = dense(in[0], stream()).data<float>();
    Runs runs = ready(*links_, in, out, stream(), members_ ? &members_->get() : nullptr);
    if (in[0].shape(-1) == out[0].shape(-1)) take_over(in[0], out[0]);  // each reads x for the last time where it adds to it
    else allocate(out[0]);
    dispatch(stream(), [links = links_, members = members_, runs = std::move(runs), x, y = out[0].data<float>(), rows = rows_of(in[0])] {
      if (rows) run_all(*links, runs, x, y, (size_t)rows);
    });
  }

 private:
  std::shared_ptr<const Links> links_;
  std::shared_ptr<const Members> members_;
};

// Of x, for sublayers that remember [rows, tokens, width], and the step. Returns the answer, and what each that remembers
// gives. One that attends: the lanes as they are once the step's tokens are written, or what lies beside them. One that
// folds: states after the step, and its opening products where they are asked for. members: which of the adapters that its
// matrices know the rows have.
Arrays through(const Chain& chain, const Array& x, const Ints& starts, const Ints& counts, int first, const std::vector<Memory>& memories,
               const Held<Members>* held) {
  const std::shared_ptr<const Members> members = held ? held->by : nullptr;
  want_float(x, "x");
  want(!members || (x.ndim() > 1 && x.shape(0) == members->rows()), "there must be as many rows as there are members");
  want(x.ndim() > 0 && x.shape(-1) == chain.width(), "x must have rows, as wide as the sublayers");
  Arrays in{x};
  std::vector<mx::Shape> shapes{x.shape()};
  shapes[0].back() = chain.output_width();
  std::vector<mx::Dtype> types{mx::float32};
  const bool tokens = x.ndim() == 3;
  Links links = chain.links(x.shape(0), tokens ? x.shape(1) : 0, starts, counts, first, memories, in, shapes, types);
  return Array::make_arrays(std::move(shapes), types, std::make_shared<Through>(processor(), std::move(links), members), in);
}

void define(nb::module_& m) {
  nb::class_<Chain>(m, "Chain")
      .def(nb::init<const std::vector<Part>&>(), nb::arg("sublayers"))
      .def("__call__", &through, nb::arg("x"), nb::arg("starts") = Ints{}, nb::arg("counts") = Ints{}, nb::arg("first") = 0,
           nb::arg("memories") = std::vector<Memory>{}, nb::arg("members").none() = nb::none());
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
