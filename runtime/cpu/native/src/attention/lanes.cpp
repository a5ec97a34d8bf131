// Writing into the memory of keys and values where it lies, also while jobs that wait still hold it: they run before these
// do. MLX's own update of a part copies the whole lane then.
#include "attention/lanes.h"

#include <cstring>

#include "mlx/ops.h"

namespace modelkit {
void own_lane(const Array& lane, Array& out, mx::Stream stream) {
  if (write_into(lane, out)) return;
  const Array from = dense(lane, stream);
  dispatch(stream, [from = from.data<char>(), to = out.data<char>(), size = out.nbytes()] { std::memcpy(to, from, size); });
}

namespace {
// Slots of rows of a lane [R, H, S, W].
struct Slots {
  size_t first, rows, from, count;
};

void want_slots(const Array& lane, int first, int rows, int from, int count) {
  want(lane.ndim() == 4, "a lane is [R, H, S, W]");
  want(first >= 0 && rows >= 0 && first + rows <= lane.shape(0) && from >= 0 && count >= 0 && from + count <= lane.shape(2),
       "a lane has such rows and slots");
}

// The same lane, and in some slots of its rows an array [rows, H, count, W].
class Placed : public Node {
 public:
  Placed(mx::Stream stream, Slots at) : Node(stream), at_(at) {}
  const char* name() const override { return "Placed"; }
  void eval_cpu(const Arrays& in, Arrays& outs) override {
    Array& out = outs[0];
    own_lane(in[0], out, stream());
    const Array part = dense(in[1], stream());
    const size_t slot = out.shape(3) * out.itemsize(), head = out.shape(2) * slot, heads = out.shape(1);
    char* const to = out.data<char>() + at_.first * heads * head + at_.from * slot;
    dispatch(stream(), [to, from = part.data<char>(), head, bytes = at_.count * slot, all = at_.rows * heads] {
      for (size_t h = 0; h < all; h++) std::memcpy(to + h * head, from + h * bytes, bytes);
    });
  }
  // Gradients pass through a lane where what a format costs is asked (runtime.quality).
  Arrays vjp(const Arrays& in, const Arrays& of, const std::vector<int>& wanted, const Arrays&) override {
    const mx::Shape from{(int)at_.first, 0, (int)at_.from, 0};
    const mx::Shape to{(int)(at_.first + at_.rows), in[0].shape(1), (int)(at_.from + at_.count), in[0].shape(3)};
    Arrays found;
    for (const int i : wanted)
      found.push_back(i ? mx::slice(of[0], from, to, stream()) : mx::slice_update(of[0], mx::zeros_like(in[1], stream()), from, to, stream()));
    return found;
  }

 private:
  Slots at_;
};

// The same lane, in whose rows what stands in some slots stands in the first ones.
class MovedUp : public Node {
 public:
  MovedUp(mx::Stream stream, Slots what) : Node(stream), what_(what) {}
  const char* name() const override { return "MovedUp"; }
  void eval_cpu(const Arrays& in, Arrays& outs) override {
    Array& out = outs[0];
    own_lane(in[0], out, stream());
    const size_t slot = out.shape(3) * out.itemsize(), head = out.shape(2) * slot, heads = out.shape(1);
    char* const rows = out.data<char>() + what_.first * heads * head;
    dispatch(stream(), [rows, head, from = what_.from * slot, bytes = what_.count * slot, all = what_.rows * heads] {
      for (size_t h = 0; h < all; h++) std::memmove(rows + h * head, rows + h * head + from, bytes);
    });
  }

 private:
  Slots what_;
};

Array placed(const Array& lane, const Array& part, int first, int slot) {
  want(part.ndim() == 4, "what is placed is [rows, H, slots, W]");
  want_slots(lane, first, part.shape(0), slot, part.shape(2));
  want(part.dtype() == lane.dtype() && part.shape(1) == lane.shape(1) && part.shape(3) == lane.shape(3),
       "what is placed has the heads, the width and the type of the lane");
  const Slots at{(size_t)first, (size_t)part.shape(0), (size_t)slot, (size_t)part.shape(2)};
  return Array(lane.shape(), lane.dtype(), std::make_shared<Placed>(processor(), at), {lane, part});
}

Array moved_up(const Array& lane, int first, int rows, int slot, int count) {
  want_slots(lane, first, rows, slot, count);
  const Slots what{(size_t)first, (size_t)rows, (size_t)slot, (size_t)count};
  return Array(lane.shape(), lane.dtype(), std::make_shared<MovedUp>(processor(), what), {lane});
}

void define(nb::module_& m) {
  m.def("placed", &placed, nb::arg("lane"), nb::arg("part"), nb::arg("first"), nb::arg("slot"));
  m.def("moved_up", &moved_up, nb::arg("lane"), nb::arg("first"), nb::arg("rows"), nb::arg("slot"), nb::arg("count"));
}
const Topic topic(define);
}  // namespace
}  // namespace modelkit
