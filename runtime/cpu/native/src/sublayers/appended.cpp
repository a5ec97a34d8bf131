// Sublayers of a stream x to which c, as wide as x, is appended: [x | c]. c begins as an input of the step, some sublayers replace it
// by their answer, and the last one reads it beside x and drops it. See `runtime.parts.streams`.
#include "sublayers/sublayers.h"

namespace modelkit {
namespace {
// Appends an input of the step to the stream.
class AppendInput : public Sublayer {
 public:
  explicit AppendInput(int width) : width_(width) { want(width > 0, "a stream has numbers"); }
  int width() const override { return width_; }
  int output_width() const override { return 2 * width_; }
  bool remembers() const override { return true; }
  Remembered remember(const Memory& memory, Making& made) const override { return given_of(memory, made, width_); }

  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays&) const override {
    const Array own = dense(in[std::get<int>(of)], from.stream);
    return [given = own.data<float>(), apart = (size_t)own.shape(2), size = (size_t)width_](const float*, const float* to, float* y, int rows) {
      for (size_t row = 0; row < (size_t)rows; row++) {
        std::copy_n(to + row * size, size, y + 2 * row * size);
        std::copy_n(given + row * apart, size, y + (2 * row + 1) * size);
      }
    };
  }

 private:
  int width_;
};

// Replaces c by a sublayer's answer to it, or to [x | c] where the sublayer reads as much.
class UpdateAppended : public Sublayer {
 public:
  explicit UpdateAppended(const Part& inner) : inner_(inner.by) {
    const int size = inner_->width();
    want(inner_->output_width() == size && (inner_->input_width() == size || inner_->input_width() == 2 * size),
         "what replaces the appended numbers must be as wide, and read them, or them and the stream");
    weights = inner_->weights;
  }
  int width() const override { return 2 * inner_->width(); }
  bool remembers() const override { return inner_->remembers(); }
  Remembered remember(const Memory& memory, Making& made) const override { return inner_->remember(memory, made); }

  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const override {
    const size_t size = inner_->width();
    return [run = inner_->ready(from, of, in, out), size, whole = inner_->input_width() > (int)size](
               const float*, const float* to, float* y, int rows) {
      const size_t wide = 2 * size;
      const Scratch answer = scratch(rows, size), appended = whole ? nullptr : scratch(rows, size);
      for (size_t row = 0; !whole && row < (size_t)rows; row++) std::copy_n(to + row * wide + size, size, appended.get() + row * size);
      std::fill_n(answer.get(), rows * size, 0.0f);
      run(whole ? to : appended.get(), answer.get(), answer.get(), rows);
      if (y != to) std::copy_n(to, rows * wide, y);
      for (size_t row = 0; row < (size_t)rows; row++) std::copy_n(answer.get() + row * size, size, y + row * wide + size);
    };
  }

 private:
  std::shared_ptr<Sublayer> inner_;
};

// A sublayer reads x + c close, and adds to x; c is dropped.
class ReadAppended : public Sublayer {
 public:
  ReadAppended(const Matrix& close, const Part& inner) : close_(close), inner_(inner.by) {
    want(inner_->output_width() == inner_->width() && inner_->input_width() == inner_->width(),
         "what reads the appended numbers is as wide as the stream");
    want_matrix(close, inner_->width(), "the appended numbers pass one matrix, as wide as the stream");
    want(close.outputs() == inner_->width(), "the matrix of the appended numbers is as wide as the stream");
    weights.add(close), weights.add(inner_->weights);
  }
  int width() const override { return 2 * inner_->width(); }
  int output_width() const override { return inner_->width(); }
  bool remembers() const override { return inner_->remembers(); }
  Remembered remember(const Memory& memory, Making& made) const override { return inner_->remember(memory, made); }

  Run ready(Taken from, const Remembered& of, const Arrays& in, Arrays& out) const override {
    const mk_matrix close = take(close_, from);
    return [close, run = inner_->ready(from, of, in, out)](const float*, const float* to, float* y, int rows) {
      const size_t size = close.n, wide = 2 * size;
      const Scratch read = scratch(rows, size);
      for (size_t row = 0; row < (size_t)rows; row++) std::copy_n(to + row * wide, size, y + row * size);
      std::copy_n(y, rows * size, read.get());
      const mk_output added = {read.get(), size, read.get()};
      mk_products(&close, &added, 1, to + size, wide, rows);
      run(read.get(), y, y, rows);
    };
  }

 private:
  Matrix close_;
  std::shared_ptr<Sublayer> inner_;
};

void define(nb::module_& m) {
  m.def("append_input", [](int width) { return Part{std::make_shared<AppendInput>(width)}; }, nb::arg("width"));
  m.def("update_appended", [](const Part& part) { return Part{std::make_shared<UpdateAppended>(part)}; }, nb::arg("sublayer"));
  m.def("read_appended", [](const Matrix& close, const Part& part) { return Part{std::make_shared<ReadAppended>(close, part)}; }, nb::arg("close"),
        nb::arg("sublayer"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
