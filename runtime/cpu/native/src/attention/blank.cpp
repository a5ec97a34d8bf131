// Memory for keys and values that nobody has written yet: zeros that take no page of the machine's memory before somebody
// writes there. Rows share one array, as wide as the longest of them, and short ones would have most of it filled with zeros.
//
// The memory is the allocator's, since MLX hands on what it owns and nothing else (`write_into`). What pages lie wholly in
// it are given back to the system, which maps zeros where they are touched again; that is tried on the first of them, and
// where it does not work all is written.
#include "graph/node.h"

#include <algorithm>
#include <cstring>

#if defined(__linux__)
#include <fstream>
#include <string>

#include <sys/mman.h>
#include <unistd.h>
#endif

namespace modelkit {
namespace {
constexpr size_t MUCH = 1 << 17;  // bytes from which on it pays

struct Pages {
  char *first, *last;  // empty where the first is not below the last
};

#if defined(__linux__)
bool of_system() {
  static const bool known = word_in_front() >= 0;
  return known;
}

// Those that lie wholly in some memory.
Pages pages_in(char* data, size_t bytes) {
  const size_t page = (size_t)::sysconf(_SC_PAGESIZE);
  return {data + (page - (uintptr_t)data % page) % page, data + bytes - (uintptr_t)(data + bytes) % page};
}

bool given_back(Pages pages) {
  pages.first[0] = 1;
  return !::madvise(pages.first, (size_t)(pages.last - pages.first), MADV_DONTNEED) && !pages.first[0];
}

bool says(const char* file, const char* what) {
  std::ifstream in(file);
  std::string text;
  return std::getline(in, text) && text.find(what) != std::string::npos;
}
#endif

void make_zero(char* data, size_t bytes) {
#if defined(__linux__)
  const Pages pages = pages_in(data, bytes);
  if (of_system() && bytes >= MUCH && pages.first < pages.last && given_back(pages)) {
    std::memset(data, 0, (size_t)(pages.first - data));
    std::memset(pages.last, 0, (size_t)(data + bytes - pages.last));
    return;
  }
#endif
  std::memset(data, 0, bytes);
}

// Is memory that nobody wrote to nobody's? Not where the system hands out pages of megabytes, of which one byte takes all, nor
// where it counts what was asked for.
bool by_pages() {
#if defined(__linux__)
  return of_system() && !says("/sys/kernel/mm/transparent_hugepage/enabled", "[always]") && !says("/proc/sys/vm/overcommit_memory", "2");
#else
  return false;
#endif
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

// The same lane [R, H, S, W], of whose row the slots from some on are not wanted any more: their pages go, where nobody else
// holds them.
class Emptied : public Node {
 public:
  Emptied(mx::Stream stream, int row, int slot) : Node(stream), row_(row), slot_(slot) {}
  const char* name() const override { return "Emptied"; }
  void eval_cpu(const Arrays& in, Arrays& outs) override {
    const Array& lane = in[0];
    Array& out = outs[0];
    const bool alone = may_write_into(lane);
    out.copy_shared_buffer(lane);
#if defined(__linux__)
    if (!alone || !of_system()) return;
    const size_t slot = lane.shape(3) * lane.itemsize(), head = lane.shape(2) * slot, heads = lane.shape(1);
    char* const from = out.data<char>() + row_ * heads * head + slot_ * slot;
    dispatch(stream(), [from, head, heads, bytes = head - slot_ * slot] {
      for (size_t h = 0; h < heads; h++) {
        const Pages pages = pages_in(from + h * head, bytes);
        if (pages.first < pages.last) given_back(pages);
      }
    });
#else
    (void)alone;
#endif
  }

 private:
  size_t row_, slot_;
};

Array emptied(const Array& lane, int row, int slot) {
  want(lane.ndim() == 4 && row >= 0 && row < lane.shape(0) && slot >= 0 && slot <= lane.shape(2), "a lane is [R, H, S, W], and has such a row and slot");
  return Array(lane.shape(), lane.dtype(), std::make_shared<Emptied>(processor(), row, slot), {lane});
}

Array blank(const std::vector<int>& dims, mx::Dtype dtype) {
  return Array(mx::Shape(dims.begin(), dims.end()), dtype, std::make_shared<Blank>(processor(), Ints()), {});
}

Array refitted(const Array& lane, int rows, int slots, Ints used) {
  want(lane.ndim() == 4 && rows > 0 && slots > 0, "a lane is [R, H, S, W], and has room");
  return Array({rows, lane.shape(1), slots, lane.shape(3)}, lane.dtype(), std::make_shared<Blank>(processor(), std::move(used)), {lane});
}

void define(nb::module_& m) {
  m.def("by_pages", &by_pages);
  m.def("emptied", &emptied, nb::arg("lane"), nb::arg("row"), nb::arg("slot"));
  m.def("blank", &blank, nb::arg("shape"), nb::arg("dtype"));
  m.def("refitted", &refitted, nb::arg("lane"), nb::arg("rows"), nb::arg("slots"), nb::arg("used"));
}
const Topic topic(define);
}  // namespace
}  // namespace modelkit
