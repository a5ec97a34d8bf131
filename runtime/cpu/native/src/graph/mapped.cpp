// Arrays over a file that is mapped into memory: nothing is read before somebody computes with it, and processes
// that map one file share its pages. There is no node here: such arrays are there from the start.
//
// MLX's processor allocator hands out a buffer by the address of a word in front of the data, in which it keeps
// their size (backend/no_gpu/allocator.cpp). All arrays of a file share one buffer that begins behind the file's
// first 8 bytes, so the word in front of it is readable too: in safetensors the length of the header. How far the
// two lie apart is asked of the allocator itself; a file is not mapped where the answer is not understood.
//
// MLX frees what it owns and nothing else: this buffer has a deleter of its own, which unmaps. It never takes such
// an array's memory for an answer either, as it does with owned ones (array::is_donatable).
#include "graph/node.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace modelkit {
namespace {
constexpr size_t FRONT = 8;  // bytes of the file in front of the shared buffer
static_assert((ptrdiff_t)FRONT >= MOST_IN_FRONT);

[[noreturn]] void fail(const std::string& path) { throw nb::value_error((path + ": " + std::strerror(errno)).c_str()); }

// A matrix of some MB is a thousand pages of 4 kB, more than a processor knows by heart, and it asks for each of
// them at every token. Linux reads a file in pages of 2 MB where it is told to, and maps them as one where the file
// is in its cache that way (ext4, xfs, btrfs): on a Zen 4 tokens of one row take 0.96 of the time, and 0.8 while
// others use the memory. What is in the cache in small pages stays so; whatever the system answers, the bytes are the
// same.
void ask_for_large_pages([[maybe_unused]] void* start, [[maybe_unused]] size_t size) {
#ifdef MADV_HUGEPAGE
  ::madvise(start, size, MADV_HUGEPAGE);
#endif
}

// One file, mapped as long as an array of it lives.
class File {
 public:
  explicit File(const std::string& path) {
    const ptrdiff_t apart = word_in_front();
    if (apart < 0) throw nb::value_error("MLX's buffers are not understood, so no file can be mapped");
    const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (opened < 0) fail(path);
    struct stat about;
    const bool known = !::fstat(opened, &about);
    size_ = known ? (size_t)about.st_size : 0;
    if (known && size_ <= FRONT) errno = EINVAL;
    void* start = known && size_ > FRONT ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, opened, 0) : MAP_FAILED;
    const int failed = errno;
    ::close(opened);
    errno = failed;
    if (start == MAP_FAILED) fail(path);
    ask_for_large_pages(start, size_);
    char* data = static_cast<char*>(start) + FRONT;
    const size_t size = size_;
    auto unmap = [start, size](mx::allocator::Buffer) { ::munmap(start, size); };
    mx::allocator::Buffer buffer(data - apart);
    whole_ = std::make_unique<Array>(mx::allocator::Data(buffer, unmap), mx::Shape{0}, mx::uint8);
  }

  // What lies at a byte of the file. The array keeps the file mapped, with or without this object.
  Array at(size_t start, const std::vector<int>& dims, mx::Dtype dtype) const {
    const mx::Shape shape(dims.begin(), dims.end());
    size_t room = start >= FRONT && start <= size_ ? (size_ - start) / mx::size_of(dtype) : 0, count = 1;
    bool fits = room > 0;  // which is all that is asked of one without dimensions
    for (int dim : dims) {
      fits = fits && dim >= 0 && (!dim || count <= room / dim);
      count *= dim;
    }
    if (!fits) throw nb::value_error("the array reaches beyond its file");
    if (!count || (start - FRONT) % mx::size_of(dtype)) throw nb::value_error("nothing can be mapped there");
    Array found(shape, dtype, nullptr, {});
    mx::Strides strides(shape.size(), 1);
    for (int axis = (int)shape.size() - 2; axis >= 0; axis--) strides[axis] = strides[axis + 1] * shape[axis + 1];
    size_t long_axes = 0;
    for (int dim : dims) long_axes += dim > 1;
    // Column by column is the same as row by row where no more than one axis has a second place.
    const Array::Flags flags{.contiguous = true, .row_contiguous = true, .col_contiguous = long_axes < 2};
    found.copy_shared_buffer(*whole_, strides, flags, count, (int64_t)((start - FRONT) / mx::size_of(dtype)));
    found.set_status(Array::Status::available);
    return found;
  }

 private:
  size_t size_;
  std::unique_ptr<Array> whole_;
};

// Of an evaluated array: do its elements lie one behind the other, row by row?
bool is_dense(const Array& x) {
  if (!x.is_available()) throw nb::value_error("the array is not evaluated");
  return x.flags().row_contiguous;
}

void define(nb::module_& m) {
  nb::class_<File>(m, "File")
      .def(nb::init<const std::string&>())
      .def("at", &File::at, nb::arg("start"), nb::arg("shape"), nb::arg("dtype"));
  m.def("is_dense", &is_dense);
}
const Topic topic(define);
}  // namespace
}  // namespace modelkit
