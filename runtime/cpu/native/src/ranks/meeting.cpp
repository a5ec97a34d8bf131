// Meeting other processes (mlx.distributed) while the interpreter goes on. MLX's own function of this name holds it for as
// long as somebody is missing, so that no signal is heard and no other thread can say that enough was waited. The group that
// is met here is the one that MLX's function gives from then on.
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string>
#include <string_view>

#include "mlx/distributed/distributed.h"
#include "graph/node.h"

namespace modelkit {
namespace {
constexpr std::string_view RING = "[ring] ";

// What is written to std::cerr but for lines of MLX's ring: of a connection that is shut while something is on its way it
// writes eleven, and what waits for that fails and is told by whoever has waited. A line comes in several pieces, and others
// between them from other threads.
class WithoutRing : public std::streambuf {
 public:
  explicit WithoutRing(std::streambuf* to) : to_(to) {}

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char one = traits_type::to_char_type(c);
    return xsputn(&one, 1) == 1 ? c : traits_type::eof();
  }

  std::streamsize xsputn(const char* text, std::streamsize length) override {
    const std::string_view given(text, static_cast<size_t>(length));
    std::string passed;
    for (const char c : given) take(c, passed);
    if (!passed.empty()) {
      const std::lock_guard lock(mutex_);
      const auto count = static_cast<std::streamsize>(passed.size());
      if (to_->sputn(passed.data(), count) < count) return 0;
    }
    return length;
  }

  int sync() override {
    const std::lock_guard lock(mutex_);
    return to_->pubsync();
  }

 private:
  struct Line {
    std::string begun;  // that may become RING
    bool inside = false, dropped = false;
  };

  static void take(char c, std::string& passed) {
    static thread_local Line line;
    if (!line.inside) {
      line.begun += c;
      if (line.begun == RING.substr(0, line.begun.size()) && line.begun.size() < RING.size()) return;
      line.dropped = line.begun == RING;
      line.inside = true;
      if (!line.dropped) passed += line.begun;
      line.begun.clear();
    } else if (!line.dropped) {
      passed += c;
    }
    if (c == '\n') line.inside = false;
  }

  std::streambuf* const to_;
  std::mutex mutex_;
};

void leave_out_ring() {
  static std::once_flag once;
  std::call_once(once, [] {
    // For ever, since threads of MLX's may write until the process ends.
    if (std::getenv("MLX_RING_VERBOSE") == nullptr) std::cerr.rdbuf(new WithoutRing(std::cerr.rdbuf()));
  });
}

void meet(const std::string& backend) {
  const nb::gil_scoped_release others_run;
  leave_out_ring();
  mx::distributed::init(true, backend);
}

void define(nb::module_& m) { m.def("meet", &meet, nb::arg("backend")); }
const Topic topic(define);
}  // namespace
}  // namespace modelkit
