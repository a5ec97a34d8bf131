#include "graph/node.h"
#include "rows/streams.h"

namespace modelkit {
namespace {
// How wide one of `count` streams is that lie side by side in x.
int width_of(const Array& x, int count) {
  want_float(x, "streams");
  if (!x.ndim() || count < 1 || count > MK_MOST_STREAMS || x.shape(-1) % count)
    throw std::invalid_argument("streams must lie side by side, and be 64 at most");
  return x.shape(-1) / count;
}

void want_rows_of(const Array& x, const Array& other, int width) {
  want_float(other, "what comes with streams");
  mx::Shape shape = x.shape();
  shape.back() = width;
  if (other.shape() != shape) throw std::invalid_argument("each row of streams must have one of what comes with it");
}

Array mix(const Array& x, const Array& by, int count) {
  const int width = width_of(x, count);
  want_rows_of(x, by, count * count);
  return row_wise("ModelkitMixStreams", {x, by}, [count, width](const Rows* in, float* y, int rows, int) {
    mk_mix_streams(in[0].data, in[0].stride, in[1].data, in[1].stride, y, count * width, rows, count, width);
  });
}

Array correct(const Array& x, const Array& answer, const Array& by, int place) {
  want_float(by, "what comes with streams");
  const int count = by.ndim() ? by.shape(-1) : 0, width = width_of(x, count);
  want_rows_of(x, by, count), want_rows_of(x, answer, width);
  if (place < 0 || place >= count) throw std::invalid_argument("no such stream");
  return row_wise("ModelkitCorrectStreams", {x, answer, by}, [count, width, place](const Rows* in, float* y, int rows, int) {
    mk_correct_streams(in[0].data, in[0].stride, in[1].data, in[1].stride, in[2].data, in[2].stride, y, count * width, rows, count, width,
                       place);
  });
}

Array join(const Array& x, const Array& answer) {
  const int count = answer.ndim() && answer.shape(-1) && x.ndim() ? x.shape(-1) / answer.shape(-1) : 0, width = width_of(x, count);
  want_rows_of(x, answer, width);
  return row_wise("ModelkitJoinStreams", {x, answer}, [count, width](const Rows* in, float* y, int rows, int) {
    mk_join_streams(in[0].data, in[0].stride, in[1].data, in[1].stride, y, count * width, rows, count, width);
  });
}

void define(nb::module_& m) {
  m.def("mix_streams", &mix, nb::arg("streams"), nb::arg("by"), nb::arg("count"));
  m.def("correct_streams", &correct, nb::arg("streams"), nb::arg("answer"), nb::arg("by"), nb::arg("place"));
  m.def("join_streams", &join, nb::arg("streams"), nb::arg("answer"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
