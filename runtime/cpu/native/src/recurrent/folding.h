// A fold over a step's tokens as its node has it. Inputs and outputs of a node are lists of arrays: the numbers say where in
// them. States follow each other in the order in which the layer's memory has them.
#pragma once
#include "graph/node.h"

namespace modelkit {
struct Folding {
  int rows, width;
  std::vector<int> starts;  // indices of rows' first tokens
  std::vector<int> counts;  // real tokens of each row; none: all of them are
  int before, after;        // the first of its states
  bool own;                 // nobody reads those before the step but the node, if nobody else has them
  int products;             // the first of its opening products among the outputs; -1: nobody asks for them
};
}  // namespace modelkit
