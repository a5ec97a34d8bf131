// What lies behind the stream for some sublayers, as wide as that: [x | c]. It begins as what a step brings, sublayers make another
// thing of it, and the last one hears it with the stream; behind that it is gone.
#include "sublayers.h"

namespace modelkit {
namespace {
// The stream, and behind it what a step brings.
class Lay : public Sublayer {
 public:
  explicit Lay(int width) : width_(width) { want(width > 0, "a stream has numbers"); }
  int width() const override { return width_; }
  int gives() const override { return 2 * width_; }
  bool remembers() const override { return true; }
  Remembered remember(const Memory& memory, Making& made) const override { return given_of(memory, made, width_); }

  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays&) const override {
    const Array own = dense(in[std::get<int>(of)], from.stream);
    return [brought = own.data<float>(), apart = (size_t)own.shape(2), size = (size_t)width_](const float*, const float* to, float* y, int rows) {
      for (size_t row = 0; row < (size_t)rows; row++) {
        std::copy_n(to + row * size, size, y + 2 * row * size);
        std::copy_n(brought + row * apart, size, y + (2 * row + 1) * size);
      }
    };
  }

 private:
  int width_;
};

// What lies behind the stream becomes what a sublayer answers to it; or to both, where it reads as much.
class Become : public Sublayer {
 public:
  explicit Become(const Part& inner) : inner_(inner.by) {
    const int size = inner_->width();
    want(inner_->gives() == size && (inner_->hears() == size || inner_->hears() == 2 * size),
         "what lies behind the stream becomes as wide an answer to it, or to both");
    weights = inner_->weights;
  }
  int width() const override { return 2 * inner_->width(); }
  bool remembers() const override { return inner_->remembers(); }
  Remembered remember(const Memory& memory, Making& made) const override { return inner_->remember(memory, made); }

  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const override {
    const size_t size = inner_->width();
    return [run = inner_->ready(from, of, in, out), size, whole = inner_->hears() > (int)size](const float*, const float* to, float* y, int rows) {
      const size_t wide = 2 * size;
      const Scratch answer = scratch(rows, size), behind = whole ? nullptr : scratch(rows, size);
      for (size_t row = 0; !whole && row < (size_t)rows; row++) std::copy_n(to + row * wide + size, size, behind.get() + row * size);
      std::fill_n(answer.get(), rows * size, 0.0f);
      run(whole ? to : behind.get(), answer.get(), answer.get(), rows);
      if (y != to) std::copy_n(to, rows * wide, y);
      for (size_t row = 0; row < (size_t)rows; row++) std::copy_n(answer.get() + row * size, size, y + row * wide + size);
    };
  }

 private:
  std::shared_ptr<Sublayer> inner_;
};

// A sublayer reads x + c close, and adds to x.
class Hear : public Sublayer {
 public:
  Hear(const Matrix& close, const Part& inner) : close_(close), inner_(inner.by) {
    want(inner_->gives() == inner_->width() && inner_->hears() == inner_->width(), "what is heard is as wide as the stream");
    want_matrix(close, inner_->width(), "what is heard passes one matrix, as wide as the stream");
    want(close.outputs() == inner_->width(), "what is heard is as wide as the stream");
    weights.add(close), weights.add(inner_->weights);
  }
  int width() const override { return 2 * inner_->width(); }
  int gives() const override { return inner_->width(); }
  bool remembers() const override { return inner_->remembers(); }
  Remembered remember(const Memory& memory, Making& made) const override { return inner_->remember(memory, made); }

  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const override {
    const mk_matrix close = take(close_, from);
    return [close, run = inner_->ready(from, of, in, out)](const float*, const float* to, float* y, int rows) {
      const size_t size = close.n, wide = 2 * size;
      const Scratch heard = scratch(rows, size);
      for (size_t row = 0; row < (size_t)rows; row++) std::copy_n(to + row * wide, size, y + row * size);
      std::copy_n(y, rows * size, heard.get());
      const mk_output added = {heard.get(), size, heard.get()};
      mk_products(&close, &added, 1, to + size, wide, rows);
      run(heard.get(), y, y, rows);
    };
  }

 private:
  Matrix close_;
  std::shared_ptr<Sublayer> inner_;
};

void define(nb::module_& m) {
  m.def("laying", [](int width) { return Part{std::make_shared<Lay>(width)}; }, nb::arg("width"));
  m.def("becoming", [](const Part& part) { return Part{std::make_shared<Become>(part)}; }, nb::arg("sublayer"));
  m.def("hearing", [](const Matrix& close, const Part& part) { return Part{std::make_shared<Hear>(close, part)}; }, nb::arg("close"),
        nb::arg("sublayer"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
