// Whole sublayers one behind the other as one node: each step is the kernel that it would be by itself, so the bits are
// those of the same steps in nodes of their own.
#include "chain.h"

#include "pairs_nodes.h"

namespace modelkit {
Chain::Chain(const std::vector<Part>& parts) : parts_(parts) {
  want(!parts.empty() && !parts[0].by->beside, "a chain must have sublayers, the first of which has none before it");
  for (const Part& part : parts) want(part.by->width() == width(), "sublayers of a chain must be equally wide");
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

void run_all(const Links& links, const Runs& runs, const float* x, float* y, size_t rows, size_t width) {
  const Room room;
  const float *read = x, *sum = x;
  Scratch copy;  // of what several read, where the first of them writes
  for (size_t i = 0; i < runs.size(); i++) {
    if (!links[i].by->beside) {
      read = sum;
      if (read == y && i + 1 < runs.size() && links[i + 1].by->beside) {
        if (!copy) copy = scratch(rows, width);
        std::copy_n(y, rows * width, copy.get()), read = copy.get();
      }
    }
    runs[i](read, sum, y, (int)rows), sum = y;
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
    take_over(in[0], out[0]);  // each reads x for the last time where it adds to it
    dispatch(stream(), [links = links_, members = members_, runs = std::move(runs), x, y = out[0].data<float>(), rows = rows_of(in[0]), width = in[0].shape(-1)] {
      if (rows) run_all(*links, runs, x, y, (size_t)rows, (size_t)width);
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
