// A room's memory as C++ has it.
#pragma once
#include <memory>

#include "threads/room.h"

namespace modelkit {
struct Room {
  Room() { mk_enter_room(); }
  Room(const Room&) = delete;
  ~Room() { mk_leave_room(); }
};

struct GiveBack {
  size_t bytes;
  void operator()(float* block) const { mk_give(block, bytes); }
};
using Scratch = std::unique_ptr<float[], GiveBack>;
inline Scratch scratch(size_t rows, size_t width) {
  size_t bytes = rows * width * sizeof(float);
  float* block = (float*)mk_take(&bytes);
  return Scratch(block, {bytes});
}
}  // namespace modelkit
