// Memory for what lies between the steps of a job. Much of it, given back to the system and asked for again, costs page faults:
// a tenth of the time in which a prompt is read. So while there is a Room, a thread gets again what it has given back.
#pragma once
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace modelkit {
class Room {
 public:
  Room() : outer_(std::exchange(here(), this)) {}
  Room(const Room&) = delete;
  ~Room() {
    here() = outer_;
    for (const auto& [floats, block] : spare_) ::operator delete[](block, ALIGNED);
  }

  struct GiveBack {
    size_t floats;
    void operator()(float* block) const {
      if (floats < MUCH) ::operator delete[](block);
      else if (here()) here()->spare_.emplace_back(floats, block);
      else ::operator delete[](block, ALIGNED);
    }
  };
  using Scratch = std::unique_ptr<float[], GiveBack>;

  static Scratch take(size_t floats) {
    if (floats < MUCH) return Scratch((float*)::operator new[](floats * sizeof(float)), {floats});
    if (Room* room = here())
      if (auto found = room->smallest(floats); found.second) return Scratch(found.second, {found.first});
    return Scratch((float*)::operator new[](floats * sizeof(float), ALIGNED), {floats});
  }

 private:
  static constexpr size_t MUCH = 1 << 14;
  static constexpr std::align_val_t ALIGNED{64};

  static Room*& here() {
    static thread_local Room* room = nullptr;
    return room;
  }

  // The smallest spare block of that many floats at least; none: nullptr.
  std::pair<size_t, float*> smallest(size_t floats) {
    size_t best = spare_.size();
    for (size_t i = 0; i < spare_.size(); i++)
      if (spare_[i].first >= floats && (best == spare_.size() || spare_[i].first < spare_[best].first)) best = i;
    if (best == spare_.size()) return {0, nullptr};
    const auto found = spare_[best];
    spare_[best] = spare_.back(), spare_.pop_back();
    return found;
  }

  Room* outer_;
  std::vector<std::pair<size_t, float*>> spare_;
};

using Scratch = Room::Scratch;
inline Scratch scratch(size_t rows, size_t width) { return Room::take(rows * width); }
}  // namespace modelkit
