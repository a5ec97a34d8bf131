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
constexpr size_t PIECE = 1 << 12;  // of what is copied: one of zeros is left out

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

bool is_zero(const char* data, size_t bytes) { return !bytes || (!data[0] && !std::memcmp(data, data + 1, bytes - 1)); }

void copy_written(const char* from, char* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += PIECE) {
    const size_t some = std::min(PIECE, bytes - at);
    if (!is_zero(from + at, some)) std::memcpy(to + at, from + at, some);
  }
}

// Zeros, or what of an array [R, H, S, W] fits into another number of rows and slots, and zeros.
class Blank : public Node {
 public:
  using Node::Node;
  const char* name() const override { return "Blank"; }
  void eval_cpu(const Arrays& in, Arrays& outs) override {
    Array& out = outs[0];
    allocate(out);
    char* to = out.data<char>();
    if (in.empty()) return dispatch(stream(), [to, bytes = out.nbytes()] { make_zero(to, bytes); });
    const Array lane = dense(in[0], stream());
    const size_t slot = lane.shape(3) * lane.itemsize(), heads = lane.shape(1);
    const size_t had = lane.shape(2) * slot, has = out.shape(2) * slot, rows = std::min(lane.shape(0), out.shape(0));
    dispatch(stream(), [to, bytes = out.nbytes(), from = lane.data<char>(), places = rows * heads, had, has] {
      make_zero(to, bytes);
      for (size_t i = 0; i < places; i++) copy_written(from + i * had, to + i * has, std::min(had, has));
    });
  }
};

Array blank(const std::vector<int>& dims, mx::Dtype dtype) {
  return Array(mx::Shape(dims.begin(), dims.end()), dtype, std::make_shared<Blank>(processor()), {});
}

Array refitted(const Array& lane, int rows, int slots) {
  want(lane.ndim() == 4 && rows > 0 && slots > 0, "a lane is [R, H, S, W], and has room");
  return Array({rows, lane.shape(1), slots, lane.shape(3)}, lane.dtype(), std::make_shared<Blank>(processor()), {lane});
}

void define(nb::module_& m) {
  m.def("blank", &blank, nb::arg("shape"), nb::arg("dtype"));
  m.def("refitted", &refitted, nb::arg("lane"), nb::arg("rows"), nb::arg("slots"));
}
const Topic topic(define);
}  // namespace
}  // namespace modelkit
