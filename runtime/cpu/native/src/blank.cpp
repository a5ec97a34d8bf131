// Memory for keys and values that nobody has written yet: zeros that take no page of the machine's memory before somebody
// writes there. Rows share one array, as wide as the longest of them, and short ones would have most of it filled with zeros.
//
// The memory is the allocator's, since MLX hands on what it owns and nothing else (`write_into`). What pages lie wholly in
// it are given back to the system, which maps zeros where they are touched again; that is tried on the first of them, and
// where it does not work all is written.
#include "node.h"

#include <algorithm>
#include <cstring>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace modelkit {
namespace {
constexpr size_t MUCH = 1 << 17;  // bytes from which on it pays

// Of whole pages.
bool given_back(char* start, size_t bytes) {
#if defined(__linux__)
  start[0] = 1;
  return !::madvise(start, bytes, MADV_DONTNEED) && !start[0];
#else
  (void)start, (void)bytes;
  return false;
#endif
}

void make_zero(char* data, size_t bytes) {
#if defined(__linux__)
  static const bool of_system = word_in_front() >= 0;
  const size_t page = (size_t)::sysconf(_SC_PAGESIZE);
  if (of_system && bytes >= MUCH && bytes > 2 * page) {
    char* const first = data + (page - (uintptr_t)data % page) % page;
    char* const last = data + bytes - (uintptr_t)(data + bytes) % page;
    if (given_back(first, (size_t)(last - first))) {
      std::memset(data, 0, (size_t)(first - data));
      std::memset(last, 0, (size_t)(data + bytes - last));
      return;
    }
  }
#endif
  std::memset(data, 0, bytes);
}

using Ints = std::vector<int>;

// Zeros; or what is used of an array [R, H, S, W], the first slots of each row, as far as it fits, and zeros.
class Blank : public Node {
 public:
  Blank(mx::Stream stream, Ints used) : Node(stream), used_(std::move(used)) {}
  const char* name() const override { return "Blank"; }
  void eval_cpu(const Arrays& in, Arrays& outs) override {
    Array& out = outs[0];
    allocate(out);
    char* to = out.data<char>();
    if (in.empty()) return dispatch(stream(), [to, bytes = out.nbytes()] { make_zero(to, bytes); });
    const Array lane = dense(in[0], stream());
    const size_t slot = lane.shape(3) * lane.itemsize(), heads = lane.shape(1);
    const size_t had = lane.shape(2) * slot, has = out.shape(2) * slot;
    std::vector<size_t> bytes;  // of each row's heads
    for (int row = 0; row < std::min({lane.shape(0), out.shape(0), (int)used_.size()}); row++)
      bytes.push_back(slot * (size_t)std::clamp(used_[row], 0, std::min(lane.shape(2), out.shape(2))));
    dispatch(stream(), [to, all = out.nbytes(), from = lane.data<char>(), bytes = std::move(bytes), heads, had, has] {
      make_zero(to, all);
      for (size_t i = 0; i < bytes.size() * heads; i++) std::memcpy(to + i * has, from + i * had, bytes[i / heads]);
    });
  }

 private:
  Ints used_;
};

Array blank(const std::vector<int>& dims, mx::Dtype dtype) {
  return Array(mx::Shape(dims.begin(), dims.end()), dtype, std::make_shared<Blank>(processor(), Ints()), {});
}

Array refitted(const Array& lane, int rows, int slots, Ints used) {
  want(lane.ndim() == 4 && rows > 0 && slots > 0, "a lane is [R, H, S, W], and has room");
  return Array({rows, lane.shape(1), slots, lane.shape(3)}, lane.dtype(), std::make_shared<Blank>(processor(), std::move(used)), {lane});
}

void define(nb::module_& m) {
  m.def("blank", &blank, nb::arg("shape"), nb::arg("dtype"));
  m.def("refitted", &refitted, nb::arg("lane"), nb::arg("rows"), nb::arg("slots"), nb::arg("used"));
}
const Topic topic(define);
}  // namespace
}  // namespace modelkit
