// What the nodes of all scans share: a job of C, filled with the arrays of a graph when it is computed.
#pragma once
#include "graph/node.h"
#include "recurrent/scans.h"

namespace modelkit {
// The inputs of a node one after the other, those that were left out as null.
class Inputs {
 public:
  Inputs(const Arrays& in, const std::vector<bool>& there, mx::Stream stream)
      : in_(in), there_(there), stream_(stream) {}

  // [rows, tokens, channels], seen through strides where its channels are one behind the other.
  mk_tokens tokens() {
    if (!there_[slot_++]) return {nullptr, 0, 0};
    const Array& x = in_[next_++];
    if (x.shape(2) == 1 || x.strides()[2] == 1) return {x.data<float>(), x.strides()[0], x.strides()[1]};
    return {dense(x, stream_).data<float>(), (ptrdiff_t)x.shape(1) * x.shape(2), x.shape(2)};
  }

  template <class T>
  const T* all() {
    return there_[slot_++] ? dense(in_[next_++], stream_).data<T>() : nullptr;
  }

 private:
  const Arrays& in_;
  const std::vector<bool>& there_;
  mx::Stream stream_;
  size_t slot_ = 0, next_ = 0;
};

// Collects what a node is made of, and refuses what its job would read beyond.
class Given {
 public:
  Given& with(const std::optional<Array>& x, const mx::Shape& shape, const char* what, mx::Dtype type = mx::float32) {
    there.push_back(x.has_value());
    if (!x) return *this;
    if (x->dtype() != type) throw std::invalid_argument(std::string(what) + " has another type than it must have");
    if (x->shape() != shape)
      throw std::invalid_argument(std::string(what) + " must be " + shown(shape) + ", and is " + shown(x->shape()));
    arrays.push_back(*x);
    return *this;
  }
  Arrays arrays;
  std::vector<bool> there;

 private:
  static std::string shown(const mx::Shape& shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); i++) text += (i ? ", " : "") + std::to_string(shape[i]);
    return text + "]";
  }
};

template <class Job>
class Scan : public Node {
 public:
  using Fill = void (*)(Job&, Inputs&, Arrays& out);
  Scan(mx::Stream stream, const char* name, Job sizes, Fill fill, void (*run)(Job), std::vector<bool> there)
      : Node(stream), name_(name), sizes_(sizes), fill_(fill), run_(run), there_(std::move(there)) {}
  const char* name() const override { return name_; }
  void eval_cpu(const Arrays& in, Arrays& out) override {
    Job job = sizes_;
    Inputs inputs(in, there_, stream());
    for (auto& array : out) allocate(array);
    fill_(job, inputs, out);
    dispatch(stream(), [job, run = run_] { run(job); });
  }

 private:
  const char* name_;
  Job sizes_;
  Fill fill_;
  void (*run_)(Job);
  std::vector<bool> there_;
};

template <class Job>
Arrays scan(const char* name, Job sizes, typename Scan<Job>::Fill fill, void (*run)(Job), Given given,
            std::vector<mx::Shape> shapes) {
  auto node = std::make_shared<Scan<Job>>(processor(), name, sizes, fill, run, std::move(given.there));
  return Array::make_arrays(std::move(shapes), std::vector<mx::Dtype>(shapes.size(), mx::float32), node, given.arrays);
}

using Pair = std::pair<Array, Array>;
using Maybe = std::optional<Array>;
inline Pair pair(const Arrays& two) { return {two[0], two[1]}; }
}  // namespace modelkit
