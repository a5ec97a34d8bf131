#include "ranks/ring.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "mlx/types/half_types.h"

namespace modelkit {
namespace {
#ifdef MSG_NOSIGNAL
constexpr int NO_SIGNAL = MSG_NOSIGNAL;
#else
constexpr int NO_SIGNAL = 0;  // Python ignores it
#endif
constexpr size_t AT_ONCE = 1 << 30;  // more is refused by some systems
constexpr size_t PIECE = 1 << 18;    // of what is put by

// One part of what happens at once: bytes that go to a neighbour, or come from one.
struct Transfer {
  int connection;
  bool sent;
  char* at;
  size_t left;
};

// Some of it, if that can be done now; false where it cannot.
bool advance(Transfer& it) {
  const size_t count = std::min(it.left, AT_ONCE);
  const ssize_t done = it.sent ? ::send(it.connection, it.at, count, MSG_DONTWAIT | NO_SIGNAL) : ::recv(it.connection, it.at, count, MSG_DONTWAIT);
  if (done > 0) {
    it.at += done;
    it.left -= (size_t)done;
    return true;
  }
  if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  throw std::runtime_error("[ring] connection to a peer was lost");
}

// Until one of them can be done, or its connection has been shut.
void sleep_for(const std::vector<Transfer>& all) {
  std::vector<pollfd> asked;
  for (const Transfer& it : all) asked.push_back({it.connection, (short)(it.sent ? POLLOUT : POLLIN), 0});
  ::poll(asked.data(), (nfds_t)asked.size(), -1);
}

// Until all have happened.
void transfer(std::vector<Transfer> all, Patience& patience, long awake_us) {
  const auto over = [](const Transfer& it) { return !it.left; };
  const auto began = Patience::Clock::now();
  bool waits = false;
  for (;;) {
    bool moved = false;
    for (Transfer& it : all) moved |= it.left && advance(it);
    all.erase(std::remove_if(all.begin(), all.end(), over), all.end());
    if (all.empty()) break;
    if (moved) continue;
    waits = true;
    // Whoever else has something to do on this core does it first: it may be what is waited for.
    if (patience.awake(Patience::Clock::now() - began, awake_us)) sched_yield();
    else sleep_for(all);
  }
  if (waits && awake_us) patience.waited(Patience::Clock::now() - began, awake_us);
}
}  // namespace

void Patience::waited(Clock::duration so_long, long most) {
  const int in_vain = in_vain_;
  if (so_long < std::chrono::microseconds(most)) in_vain_ = 0;
  else if (in_vain < LEAST) in_vain_ = in_vain + 1;
}

void Ring::send(const char* data, size_t bytes, int to) const {
  if (bytes) transfer({{to == (rank + 1) % size ? right : left, true, const_cast<char*>(data), bytes}}, patience, 0);
}

void Ring::send_and_hear(const char* data, size_t bytes) const {
  Transfer out{right, true, const_cast<char*>(data), bytes};
  while (out.left) {
    if (advance(out)) continue;
    const size_t known = heard_.size();
    heard_.resize(known + PIECE);
    Transfer in{left, false, heard_.data() + known, PIECE};
    const bool came = advance(in);
    heard_.resize(known + PIECE - in.left);
    if (!came) sleep_for({out, in});
  }
}

void Ring::receive(char* data, size_t bytes, int from) const {
  const bool from_left = from == (rank + size - 1) % size;
  if (from_left && !heard_.empty()) {
    const size_t some = std::min(bytes, heard_.size() - taken_);
    std::memcpy(data, heard_.data() + taken_, some);
    taken_ += some;
    data += some;
    bytes -= some;
    if (taken_ == heard_.size()) {
      heard_ = {};
      taken_ = 0;
    }
  }
  if (bytes) transfer({{from_left ? left : right, false, data, bytes}}, patience, 0);
}

template <class T>
void Sums::sum(const T* x, T* y, size_t count) const {
  thread_local std::vector<char> room;
  ring_->sums++;
  const size_t piece = ring_->one_way / sizeof(T);
  for (size_t done = 0; done < count; done += piece) {
    const size_t many = std::min(piece, count - done), bytes = many * sizeof(T);
    if (room.size() < bytes * count_) room.resize(bytes * count_);
    std::memcpy(room.data() + (ring_->rank - first_) * bytes, x + done, bytes);
    gather(room.data(), bytes);
    const T* part = reinterpret_cast<const T*>(room.data());
    T* out = y + done;
    for (size_t i = 0; i < many; i++) out[i] = part[i] + part[many + i];
    for (int other = 2; other < count_; other++)
      for (size_t i = 0; i < many; i++) out[i] = out[i] + part[other * many + i];
  }
}
template void Sums::sum(const float*, float*, size_t) const;
template void Sums::sum(const mlx::core::float16_t*, mlx::core::float16_t*, size_t) const;
template void Sums::sum(const mlx::core::bfloat16_t*, mlx::core::bfloat16_t*, size_t) const;

void Sums::gather(char* parts, size_t bytes) const {
  if (count_ == ring_->size) gather_round(parts, bytes);
  else gather_in_row(parts, bytes);
}

// The whole ring, as MLX gathers what is short.
void Sums::gather_round(char* parts, size_t bytes) const {
  for (int hop = 0; hop + 1 < count_; hop++) {
    char* to = parts + (ring_->rank + hop) % count_ * bytes;
    char* from = parts + (ring_->rank + hop + 1) % count_ * bytes;
    transfer({{ring_->left, true, to, bytes}, {ring_->right, false, from, bytes}}, ring_->patience, awake_us_);
  }
}

// Ranks in a row (`moves` in runtime/ranks/stage_rank.py), which is no ring.
void Sums::gather_in_row(char* parts, size_t bytes) const {
  const int at = ring_->rank - first_;
  for (int hop = 1; hop < count_; hop++) {
    std::vector<Transfer> all;
    for (int side : {-1, 1}) {
      if (at + side < 0 || at + side >= count_) continue;
      const int connection = side < 0 ? ring_->left : ring_->right, own = at - side * (hop - 1), other = at + side * hop;
      if (own >= 0 && own < count_) all.push_back({connection, true, parts + own * bytes, bytes});
      if (other >= 0 && other < count_) all.push_back({connection, false, parts + other * bytes, bytes});
    }
    transfer(std::move(all), ring_->patience, awake_us_);
  }
}
}  // namespace modelkit
