// Attention as nodes have it: how memory is kept, which rows take part, where in a node's inputs what is.
#pragma once
#include <memory>

#include "attention/attend.h"
#include "graph/node.h"

namespace modelkit {
using Maybe = std::optional<Array>;
using Ints = std::vector<int>;

constexpr int64_t FAR = INT64_C(1) << 40;  // further than any position

// How vectors of `size` numbers are kept: one array per part, [rows, heads, slots, width of the part].
struct Form {
  mk_form form;
  int size, group;

  Form(int form, int size, int group) : form((mk_form)form), size(size), group(group) {
    want(form >= 0 && form < MK_KEPT_FORMS && size > 0, "keys and values have a known form and a size");
    want(!packed() || (group > 0 && group % 16 == 0 && size % group == 0), "packed vectors consist of whole groups, and groups of sixteens");
  }
  bool packed() const { return form == MK_KEPT_Q8 || form == MK_KEPT_Q4; }
  bool like(const Form& other) const { return form == other.form && size == other.size && group == other.group; }
  int parts() const { return packed() ? 3 : 1; }
  int width(int part) const { return !packed() ? size : part ? size / group : size * (form == MK_KEPT_Q8 ? 8 : 4) / 32; }
  mx::Dtype dtype(int part) const {
    if (packed()) return part ? mx::float32 : mx::uint32;
    return form == MK_KEPT_F32 ? mx::float32 : form == MK_KEPT_BF16 ? mx::bfloat16 : mx::float16;
  }
};

// What one kind of layer attends by; all of its steps share it.
struct Attention {
  int heads, groups;
  Form keys, values;
  bool values_in_keys;
  float scale, softcap;
  int64_t before, ahead, chunk;
  bool traditional;

  Attention(int heads, int groups, std::tuple<int, int, int> keys, std::optional<std::tuple<int, int, int>> values, int value_size,
            float scale, float softcap, std::optional<int> window, std::optional<int> chunk, std::optional<int> ahead, bool traditional)
      : heads(heads), groups(groups), keys(std::get<0>(keys), std::get<1>(keys), std::get<2>(keys)),
        values(values ? Form(std::get<0>(*values), std::get<1>(*values), std::get<2>(*values)) : this->keys),
        values_in_keys(!values), scale(scale), softcap(softcap), before(window ? *window - 1 : FAR), ahead(ahead.value_or(INT_MAX)),
        chunk(chunk.value_or(0)), traditional(traditional) {
    want(heads > 0 && groups > 0 && heads % groups == 0, "the number of query heads is a multiple of that of key heads");
    want(before >= 0 && this->ahead >= 0 && this->chunk >= 0, "window, chunk and ahead are not negative");
    if (values_in_keys) {
      want(value_size > 0 && value_size <= this->keys.size, "values that lie in the keys are not longer than they");
      this->values.size = value_size;
    }
    want(this->values.size == value_size, "value_size is that of the values' form");
  }
  int parts() const { return keys.parts() + (values_in_keys ? 0 : values.parts()); }
  const Form& form(int part) const { return part < keys.parts() ? keys : values; }
  int within(int part) const { return part < keys.parts() ? part : part - keys.parts(); }
};

struct Shape {
  int rows, width;
};

// [rows, tokens, heads * size] or [rows, heads, tokens, size], in float32.
Shape heads_of(const Array& x, int heads, int size, const char* what);

// Of each token's queries, `row` floats from one row to the next.
struct Factors {
  const float* data = nullptr;  // NULL: all are 1
  size_t row = 0;
};

// Attention of one step, as its node has it. Inputs of a node are one list of arrays: the numbers say where in it.
struct Attending {
  Attention by;
  int width = 0, first = 0;   // queries of the widest row; the row of the lanes that is row 0 of the step
  std::vector<mk_row> rows;
  int table = -1, mask = -1, sinks = -1, lanes = -1, apart = -1;  // -1: there is no such input
  int written = 0;  // the first of the outputs that are lanes
  bool writes = false, beside = false;
  int turn = 0;        // of the table's tokens, the one that is this step's first
  int factors = -1;    // among the inputs: of each token's queries
  bool later = false;  // somebody before it in the same node has taken over the lanes

  Attending(const Attention& by, Shape shape) : by(by), width(shape.width), rows(shape.rows) {}

  // Add inputs, checked.
  void add_extras(const Maybe& table, const Maybe& mask, const Maybe& sinks, Arrays& in);
  int add_lanes(const Arrays& lanes, int rows, Arrays& in) const;  // returns how many slots they have
  // The lanes as inputs, and as outputs as they are once the step's tokens are written; or what lies beside them.
  void write_to(const Arrays& lanes, const Ints& starts, const Ints& counts, const Ints& bases, int first, bool beside, Arrays& in,
                std::vector<mx::Shape>& shapes, std::vector<mx::Dtype>& types);
  // Of lanes that somebody else has written to: they hold what the step's tokens see. edges: where what lies apart begins.
  void read_from(const Arrays& lanes, const Arrays& apart, const Ints& starts, const Ints& counts, const Ints& bases, const Ints& edges,
                 const Ints& stops, int first, Arrays& in);
  // The same where `donor` does so in the same node.
  void see(const Attending& donor);
  void add_factors(const Maybe& factors, Arrays& in);
  Factors factors_of(const Arrays& in, mx::Stream stream) const;
  // Of the token that stands `more` behind those of this step: one of each row, in a step of its own. table: of the tokens
  // behind this step, among the inputs; -1 for none.
  Attending behind(int more, int table) const;

  // For eval_cpu: all but queries, new keys and values, and where the answer goes.
  void set(mk_attention& a, const Arrays& in, Arrays& out, mx::Stream stream) const;
};
}  // namespace modelkit
