// States of rows, one piece behind the other, as one array. A row that joins others costs no copy of them: the first piece's
// memory has room for more rows, and the others come behind it there where nobody else has it.
#include "graph/node.h"

#include <algorithm>
#include <cstring>

namespace modelkit {
namespace {
// room: rows that new memory is made for. own: nothing was seen through the first piece's memory.
class Joined : public Node {
 public:
  Joined(mx::Stream stream, int room, bool own) : Node(stream), room_(room), own_(own) {}
  const char* name() const override { return "Joined"; }
  void eval_cpu(const Arrays& in, Arrays& outs) override {
    Array& out = outs[0];
    const Array& first = in[0];
    const bool stays = own_ && !first.offset() && may_write_into(first) && first.buffer_size() >= out.nbytes();
    if (stays) out.copy_shared_buffer(first, out.strides(), {true, true, false}, out.size());
    else out.set_data(mx::allocator::malloc(out.nbytes() / out.shape(0) * room_));
    char* to = out.data<char>();
    for (const Array& piece : in) {
      const size_t bytes = piece.nbytes();
      if (!stays || &piece != &first) {
        const char* from = dense(piece, stream()).data<char>();
        dispatch(stream(), [to, from, bytes] { std::memcpy(to, from, bytes); });
      }
      to += bytes;
    }
  }

 private:
  size_t room_;
  bool own_;
};

Array joined(const Arrays& pieces, int room, bool own) {
  want(!pieces.empty() && pieces[0].ndim() > 0, "there must be pieces, and they must have rows");
  mx::Shape shape = pieces[0].shape();
  shape[0] = 0;
  for (const Array& piece : pieces) {
    want(piece.dtype() == pieces[0].dtype() && piece.ndim() == shape.size() &&
             std::equal(shape.begin() + 1, shape.end(), piece.shape().begin() + 1),
         "pieces must be alike but for their rows");
    shape[0] += piece.shape(0);
  }
  want(shape[0] > 0 && room >= shape[0], "there must be room for all rows");
  return Array(shape, pieces[0].dtype(), std::make_shared<Joined>(processor(), room, own), pieces);
}

void define(nb::module_& m) { m.def("joined", &joined, nb::arg("pieces"), nb::arg("room"), nb::arg("own")); }
const Topic topic(define);
}  // namespace
}  // namespace modelkit
