// The memory of one layer's keys and values, [R, H, S, W], which nodes write into where it lies.
#pragma once
#include "graph/node.h"

namespace modelkit {
// The lane in the out array: the same memory, or a copy where somebody else holds it.
void own_lane(const Array& lane, Array& out, mx::Stream stream);
}  // namespace modelkit
