// Sublayers one behind the other, as nodes take them through one step or several.
#pragma once
#include "sublayers/sublayers.h"

namespace modelkit {
// One of a node's sublayers, in one step.
struct Link {
  std::shared_ptr<const Sublayer> by;
  Remembered of;
  int weights_at = -1;
};
using Links = std::vector<Link>;
using Runs = std::vector<Sublayer::Run>;

// As Python has sublayers that follow each other.
class Chain {
 public:
  explicit Chain(const std::vector<Part>& parts);

  // Of a step whose tokens are [rows, width]: adds what its links read to the inputs, and what they give to the outputs. memories:
  // of those that remember, in order; width 0 where there are no tokens but rows.
  Links links(int rows, int width, const Ints& starts, const Ints& counts, int first, const std::vector<Memory>& memories, Arrays& in,
              std::vector<mx::Shape>& shapes, std::vector<mx::Dtype>& types) const;
  // For x [rows, width]; it makes [rows, gives] of it.
  int width() const { return parts_.front().by->width(); }
  int output_width() const { return parts_.back().by->output_width(); }

 private:
  std::vector<Part> parts_;
};

// For eval_cpu, with the node's inputs and outputs.
Runs ready(const Links& links, const Arrays& in, Arrays& out, mx::Stream stream, const mk_members* members = nullptr);

// y = x through the links, both dense; y may be x where they are equally wide.
void run_all(const Links& links, const Runs& runs, const float* x, float* y, size_t rows);
}  // namespace modelkit
