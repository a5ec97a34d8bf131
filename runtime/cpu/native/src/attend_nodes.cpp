#include <climits>
#include <cstring>
#include <memory>

#include "attend.h"
#include "node.h"

namespace modelkit {
namespace {
constexpr int64_t FAR = INT64_C(1) << 40;  // further than any position

void want(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument(what);
}

// How vectors of `size` numbers are kept: one array per part, [rows, heads, slots, width of the part].
struct Form {
  mk_form form;
  int size, group;

  Form(int form, int size, int group) : form((mk_form)form), size(size), group(group) {
    want(form >= 0 && form < MK_KEPT_FORMS && size > 0, "keys and values have a known form and a size");
    want(!packed() || (group > 0 && group % 16 == 0 && size % group == 0), "packed vectors consist of whole groups, and groups of sixteens");
  }
  bool packed() const { return form == MK_KEPT_Q8 || form == MK_KEPT_Q4; }
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

// The inputs of a node are one list of arrays; -1: there is no such input.
struct Inputs {
  int table = -1, mask = -1, sinks = -1, new_keys = -1, lanes = -1, beside = -1;
};

struct Places {
  std::vector<mk_row> rows;
  int width, first;  // queries of the widest row; the row of the lanes that is row 0 of the step
};

// [rows, tokens, heads * size] or [rows, heads, tokens, size], the last axis side by side; anything else is copied.
mk_strided strided(const Array& x, int size, mx::Stream stream) {
  const Array y = x.strides(-1) == 1 || x.shape(-1) == 1 ? x : dense(x, stream);
  const auto& s = y.strides();
  if (y.ndim() == 3) return {y.data<float>(), s[0], size, s[1]};
  return {y.data<float>(), s[0], s[1], s[2]};
}

mk_kept kept(const Form& form, const Array* parts, int first, mx::Stream stream) {
  mk_kept k{form.form, form.size, form.group, {}, {}, {}, {}};
  for (int i = 0; i < form.parts(); i++) {
    const Array x = parts[i].strides(-1) == 1 || parts[i].shape(-1) == 1 ? parts[i] : dense(parts[i], stream);
    const ptrdiff_t size = x.itemsize();
    k.row[i] = x.strides(0) * size, k.head[i] = x.strides(1) * size, k.slot[i] = x.strides(2) * size;
    k.part[i] = const_cast<char*>(x.data<char>()) + first * k.row[i];
  }
  return k;
}

class Attend : public Node {
 public:
  Attend(mx::Stream stream, const Attention& by, Places places, Inputs at, bool writes, bool beside)
      : Node(stream), by_(by), places_(std::move(places)), at_(at), writes_(writes), beside_(beside) {}
  const char* name() const override { return "ModelkitAttend"; }

  void eval_cpu(const Arrays& in, Arrays& out) override {
    hold_inputs_once(in, out);
    struct Job {
      mk_attention a;
      std::vector<mk_row> rows;
    };
    auto job = std::make_shared<Job>();
    job->rows = places_.rows;
    mk_attention& a = job->a;
    a = {};
    a.rows = (int)job->rows.size(), a.width = places_.width, a.row = job->rows.data();
    a.heads = by_.heads, a.groups = by_.groups, a.size = by_.keys.size, a.value_size = by_.values.size;
    a.scale = by_.scale, a.softcap = by_.softcap, a.before = by_.before, a.ahead = by_.ahead, a.chunk = by_.chunk;
    a.values_in_keys = by_.values_in_keys, a.traditional = by_.traditional, a.writes_beside = beside_;
    a.queries = strided(in[0], by_.keys.size, stream());
    extras(a, in);
    allocate(out[0]);
    a.out = out[0].data<float>();
    const Array *lanes = &in[at_.lanes], *apart = at_.beside < 0 ? lanes : &in[at_.beside];
    int apart_first = at_.beside < 0 ? places_.first : 0;
    if (writes_) {
      a.new_keys = strided(in[at_.new_keys], by_.keys.size, stream());
      if (!by_.values_in_keys) a.new_values = strided(in[at_.new_keys + 1], by_.values.size, stream());
      for (int i = 0; i < by_.parts(); i++) {
        if (beside_) allocate(out[1 + i]);
        else own(in[at_.lanes + i], out[1 + i]);
      }
      apart = &out[1];
      if (beside_) apart_first = 0;
      else lanes = &out[1];
    }
    a.keys = kept(by_.keys, lanes, places_.first, stream());
    a.keys_beside = kept(by_.keys, apart, apart_first, stream());
    if (!by_.values_in_keys) {
      a.values = kept(by_.values, lanes + by_.keys.parts(), places_.first, stream());
      a.values_beside = kept(by_.values, apart + by_.keys.parts(), apart_first, stream());
    }
    dispatch(stream(), [job] { mk_attend(&job->a); });
  }

 private:
  // The lane in the out array: the same memory, or a copy where somebody else holds it.
  void own(const Array& lane, Array& out) {
    if (write_into(lane, out)) return;
    const Array from = dense(lane, stream());
    dispatch(stream(), [from = from.data<char>(), to = out.data<char>(), size = out.nbytes()] { std::memcpy(to, from, size); });
  }

  void extras(mk_attention& a, const Arrays& in) {
    if (at_.table >= 0) {
      const Array table = dense(in[at_.table], stream());
      a.turns = table.data<float>(), a.pairs = table.shape(2) / 2, a.turns_row = table.shape(0) == 1 ? 0 : table.size() / table.shape(0);
    }
    if (at_.sinks >= 0) a.sinks = dense(in[at_.sinks], stream()).data<float>();
    if (at_.mask < 0) return;
    const Array& mask = in[at_.mask];
    auto stride = [&](int axis) { return mask.shape(axis) == 1 ? 0 : (ptrdiff_t)mask.strides(axis); };
    a.mask = mask.data<char>(), a.mask_is_bool = mask.dtype() == mx::bool_;
    a.mask_row = stride(0), a.mask_head = stride(1), a.mask_token = stride(2), a.mask_key = stride(3);
  }

  Attention by_;
  Places places_;
  Inputs at_;
  bool writes_, beside_;
};

// ---- what a step asks for, checked ----

struct Shape {
  int rows, width;
};

Shape heads_of(const Array& x, int heads, int size, const char* what) {
  want_float(x, what);
  const bool flat = x.ndim() == 3 && x.shape(2) == heads * size, split = x.ndim() == 4 && x.shape(1) == heads && x.shape(3) == size;
  want(flat || split, std::string(what) + " are [rows, tokens, heads * size] or [rows, heads, tokens, size]");
  return {x.shape(0), flat ? x.shape(1) : x.shape(2)};
}

void add_extras(const Attention& by, Shape shape, const std::optional<Array>& table, const std::optional<Array>& mask,
                const std::optional<Array>& sinks, Arrays& in, Inputs& at) {
  if (table) {
    want_float(*table, "the table of turns");
    want(table->ndim() == 3 && (table->shape(0) == 1 || table->shape(0) == shape.rows) && table->shape(1) == shape.width &&
             table->shape(2) % 2 == 0 && table->shape(2) <= by.keys.size,
         "the table of turns is [rows or 1, tokens, 2 * pairs], and pairs fit into a key");
    at.table = in.size(), in.push_back(*table);
  }
  if (mask) {
    want(mask->dtype() == mx::bool_ || mask->dtype() == mx::float32, "a mask is bool or float32");
    want(mask->ndim() == 4 && (mask->shape(0) == 1 || mask->shape(0) == shape.rows) && (mask->shape(1) == 1 || mask->shape(1) == by.heads) &&
             (mask->shape(2) == 1 || mask->shape(2) == shape.width),
         "a mask is [rows or 1, heads or 1, tokens or 1, keys]");
    at.mask = in.size(), in.push_back(*mask);
  }
  if (sinks) {
    want_float(*sinks, "sinks");
    want(sinks->ndim() == 1 && sinks->shape(0) == by.heads, "there is one sink per head");
    at.sinks = in.size(), in.push_back(*sinks);
  }
}

// Slots that all lanes have.
int add_lanes(const Attention& by, const Arrays& lanes, int rows, Arrays& in) {
  want((int)lanes.size() == by.parts(), "there is one array per part of keys and values");
  for (int i = 0; i < by.parts(); i++) {
    const Array& x = lanes[i];
    want(x.dtype() == by.form(i).dtype(by.within(i)) && x.ndim() == 4 && x.shape(0) >= rows && x.shape(1) == by.groups &&
             x.shape(2) == lanes[0].shape(2) && x.shape(3) == by.form(i).width(by.within(i)),
         "lanes are [rows, key heads, slots, width of the part], in the part's type");
    in.push_back(x);
  }
  return lanes[0].shape(2);
}

using Ints = std::vector<int>;

Arrays remember(const Attention& by, const Array& queries, const Array& keys, const std::optional<Array>& values,
                const std::optional<Array>& table, const std::optional<Array>& mask, const std::optional<Array>& sinks,
                const Arrays& lanes, const Ints& starts, const Ints& counts, const Ints& bases, int first, bool beside) {
  const Shape shape = heads_of(queries, by.heads, by.keys.size, "queries");
  const Shape written = heads_of(keys, by.groups, by.keys.size, "keys");
  want(written.rows == shape.rows && written.width == shape.width, "queries and keys are of the same tokens");
  want(values.has_value() != by.values_in_keys, "values are given unless they lie in the keys");
  Inputs at;
  Arrays in{queries};
  at.new_keys = in.size(), in.push_back(keys);
  if (values) {
    const Shape also = heads_of(*values, by.groups, by.values.size, "values");
    want(also.rows == shape.rows && also.width == shape.width, "keys and values are of the same tokens");
    in.push_back(*values);
  }
  want(!(beside && mask), "a mask is by slots, and the step's tokens have none yet");
  add_extras(by, shape, table, mask, sinks, in, at);
  at.lanes = in.size();
  const int slots = add_lanes(by, lanes, first + shape.rows, in);
  want(first >= 0 && (int)starts.size() == shape.rows && starts.size() == counts.size() && starts.size() == bases.size(),
       "there is a start, a count and a base for each row");
  Places places{{}, shape.width, first};
  for (int b = 0; b < shape.rows; b++) {
    const int64_t start = starts[b], base = bases[b], count = counts[b];
    want(base >= 0 && start >= base && count >= 0 && count <= shape.width, "a row starts where it ends, and brings no more tokens than the step is wide");
    want(start - base + (beside ? 0 : count) <= slots, "there are slots for all tokens");
    if (mask) want(mask->shape(3) >= start - base + count, "the mask says something about every key");
    places.rows.push_back({start, base, beside ? start : FAR, start + count, (int)count});
  }
  std::vector<mx::Shape> shapes{{shape.rows, shape.width, by.heads * by.values.size}};
  std::vector<mx::Dtype> types{mx::float32};
  for (int i = 0; i < by.parts(); i++) {
    shapes.push_back(beside ? mx::Shape{shape.rows, by.groups, shape.width, lanes[i].shape(3)} : lanes[i].shape());
    types.push_back(lanes[i].dtype());
  }
  auto node = std::make_shared<Attend>(processor(), by, std::move(places), at, true, beside);
  return Array::make_arrays(std::move(shapes), types, node, in);
}

Array read(const Attention& by, const Array& queries, const std::optional<Array>& table, const std::optional<Array>& mask,
           const std::optional<Array>& sinks, const Arrays& lanes, const Arrays& apart, const Ints& starts, const Ints& counts,
           const Ints& bases, const Ints& stops, int first) {
  const Shape shape = heads_of(queries, by.heads, by.keys.size, "queries");
  Inputs at;
  Arrays in{queries};
  add_extras(by, shape, table, mask, sinks, in, at);
  at.lanes = in.size();
  const int slots = add_lanes(by, lanes, first + shape.rows, in);
  int more = 0;
  if (!apart.empty()) at.beside = in.size(), more = add_lanes(by, apart, shape.rows, in);
  want(first >= 0 && (int)starts.size() == shape.rows && starts.size() == counts.size() && starts.size() == bases.size() && starts.size() == stops.size(),
       "there is a start, a count, a base and a stop for each row");
  Places places{{}, shape.width, first};
  for (int b = 0; b < shape.rows; b++) {
    const int64_t start = starts[b], base = bases[b], count = counts[b], stop = stops[b], edge = apart.empty() ? FAR : start;
    want(base >= 0 && start >= 0 && stop >= base && count >= 0 && count <= shape.width, "positions are not negative, and a row has no more queries than the step is wide");
    want((stop < edge ? stop : edge) - base <= slots && (stop <= edge || stop - edge <= more), "a row's positions lie in its slots");
    if (mask) want(mask->shape(3) >= stop - base, "the mask says something about every key");
    places.rows.push_back({start, base, edge, stop, (int)count});
  }
  return Array({shape.rows, shape.width, by.heads * by.values.size}, mx::float32,
               std::make_shared<Attend>(processor(), by, std::move(places), at, false, false), std::move(in));
}

void define(nb::module_& m) {
  nb::class_<Attention>(m, "Attention")
      .def(nb::init<int, int, std::tuple<int, int, int>, std::optional<std::tuple<int, int, int>>, int, float, float, std::optional<int>,
                    std::optional<int>, std::optional<int>, bool>(),
           nb::arg("heads"), nb::arg("groups"), nb::arg("keys"), nb::arg("values").none(), nb::arg("value_size"), nb::arg("scale"),
           nb::arg("softcap"), nb::arg("window").none(), nb::arg("chunk").none(), nb::arg("ahead").none(), nb::arg("traditional"))
      .def("remember", &remember, nb::arg("queries"), nb::arg("keys"), nb::arg("values").none(), nb::arg("table").none(),
           nb::arg("mask").none(), nb::arg("sinks").none(), nb::arg("lanes"), nb::arg("starts"), nb::arg("counts"), nb::arg("bases"),
           nb::arg("first"), nb::arg("beside"))
      .def("read", &read, nb::arg("queries"), nb::arg("table").none(), nb::arg("mask").none(), nb::arg("sinks").none(), nb::arg("lanes"),
           nb::arg("beside"), nb::arg("starts"), nb::arg("counts"), nb::arg("bases"), nb::arg("stops"), nb::arg("first"));
}
const Topic topic(define);
}  // namespace
}  // namespace modelkit
