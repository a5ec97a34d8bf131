// The connections of MLX's ring, used by whoever computes instead of by MLX's threads for them: what is to be sent is sent, and
// what is waited for is read, where it is needed. On the wire nothing differs, so a rank that has these and one that has not
// understand each other. Nothing else may be under way on the ring: what MLX itself exchanges is over when its node is.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

namespace modelkit {
// How long somebody who waits stays awake before sleeping. It pays where the wait is over by then, as to be woken takes longer
// than most messages do. So it is tried for `most`, and half as long each time that was in vain, until a wait was that short again.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  // most: microseconds; 0 sleeps at once.
  bool awake(Clock::duration waited, long most) const { return waited < std::chrono::microseconds(most >> in_vain_); }
  void waited(Clock::duration so_long, long most);

 private:
  static constexpr int LEAST = 12;  // halves: nothing of anything sensible
  std::atomic<int> in_vain_{0};
};

// As this process is placed in it. What waits raises runtime_error where a neighbour is gone.
struct Ring {
  Ring(int left, int right, int rank, int size, size_t one_way) : left(left), right(right), rank(rank), size(size), one_way(one_way) {}

  bool beside(int peer) const { return peer == (rank + 1) % size || peer == (rank + size - 1) % size; }
  void send(const char* data, size_t bytes, int to) const;
  // The same to the right, while what comes from the left is put by for `receive`. The first rank of stages sends so: where all of
  // them wait until the next one takes what they send, one has to take what was sent to it.
  void send_and_hear(const char* data, size_t bytes) const;
  void receive(char* data, size_t bytes, int from) const;

  int left, right;  // connections, which stay open as long as the process
  int rank, size;
  size_t one_way;  // bytes of a sum that are summed at once
  mutable Patience patience;
  mutable std::atomic<long> sums{0};  // that it took part in

 private:
  mutable std::vector<char> heard_;  // from the left, and not asked for yet
  mutable size_t taken_ = 0;         // of its bytes
};

// Sums over `count` ranks from the first on, in their order: a number's bits do not depend on what else is summed with it. For
// awake_us at most one that waits stays awake.
class Sums {
 public:
  Sums(std::shared_ptr<const Ring> ring, int first, int count, long awake_us) : ring_(std::move(ring)), first_(first), count_(count), awake_us_(awake_us) {}

  // y may be x. T: float, or MLX's halves.
  template <class T>
  void sum(const T* x, T* y, size_t count) const;

 private:
  // Of every rank's part, which lie one behind the other, where each knows its own.
  void gather(char* parts, size_t bytes) const;
  void gather_round(char* parts, size_t bytes) const;
  void gather_in_row(char* parts, size_t bytes) const;

  std::shared_ptr<const Ring> ring_;
  int first_, count_;
  long awake_us_;
};
}  // namespace modelkit
