#include "attention/attending.h"
#include "attention/lanes.h"

#include <algorithm>
#include <cstring>

namespace modelkit {
namespace {
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
}  // namespace

Shape heads_of(const Array& x, int heads, int size, const char* what) {
  want_float(x, what);
  const bool flat = x.ndim() == 3 && x.shape(2) == heads * size, split = x.ndim() == 4 && x.shape(1) == heads && x.shape(3) == size;
  if (!flat && !split) throw std::invalid_argument(std::string(what) + " are [rows, tokens, heads * size] or [rows, heads, tokens, size]");
  return {x.shape(0), flat ? x.shape(1) : x.shape(2)};
}

void Attending::add_extras(const Maybe& table, const Maybe& mask, const Maybe& sinks, Arrays& in) {
  const int count = (int)rows.size();
  if (table) {
    want_float(*table, "the table of turns");
    want(table->ndim() == 3 && (table->shape(0) == 1 || table->shape(0) == count) && table->shape(1) == width &&
             table->shape(2) % 2 == 0 && table->shape(2) <= by.keys.size,
         "the table of turns is [rows or 1, tokens, 2 * pairs], and pairs fit into a key");
    const auto known = std::find_if(in.begin(), in.end(), [&](const Array& x) { return x.id() == table->id(); });
    this->table = known - in.begin();
    if (known == in.end()) in.push_back(*table);
  }
  if (mask) {
    want(mask->dtype() == mx::bool_ || mask->dtype() == mx::float32, "a mask is bool or float32");
    want(mask->ndim() == 4 && (mask->shape(0) == 1 || mask->shape(0) == count) && (mask->shape(1) == 1 || mask->shape(1) == by.heads) &&
             (mask->shape(2) == 1 || mask->shape(2) == width),
         "a mask is [rows or 1, heads or 1, tokens or 1, keys]");
    this->mask = in.size(), in.push_back(*mask);
  }
  if (sinks) {
    want_float(*sinks, "sinks");
    want(sinks->ndim() == 1 && sinks->shape(0) == by.heads, "there is one sink per head");
    this->sinks = in.size(), in.push_back(*sinks);
  }
}

int Attending::add_lanes(const Arrays& lanes, int rows, Arrays& in) const {
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

void Attending::write_to(const Arrays& lanes, const Ints& starts, const Ints& counts, const Ints& bases, int first, bool beside,
                         Arrays& in, std::vector<mx::Shape>& shapes, std::vector<mx::Dtype>& types) {
  want(!(beside && mask >= 0), "a mask is by slots, and the step's tokens have none yet");
  want(first >= 0 && starts.size() == rows.size() && starts.size() == counts.size() && starts.size() == bases.size(),
       "there is a start, a count and a base for each row");
  this->first = first, this->beside = beside, writes = true, this->lanes = in.size(), written = (int)shapes.size();
  const int slots = add_lanes(lanes, first + (int)rows.size(), in);
  for (size_t b = 0; b < rows.size(); b++) {
    const int64_t start = starts[b], base = bases[b], count = counts[b];
    want(base >= 0 && start >= base && count >= 0 && count <= width, "a row starts where it ends, and brings no more tokens than the step is wide");
    want(start - base + (beside ? 0 : count) <= slots, "there are slots for all tokens");
    want(mask < 0 || in[mask].shape(3) >= start - base + count, "the mask says something about every key");
    rows[b] = {start, base, beside ? start : FAR, start + count, (int)count};
  }
  for (const Array& lane : lanes) {
    shapes.push_back(beside ? mx::Shape{(int)rows.size(), by.groups, width, lane.shape(3)} : lane.shape());
    types.push_back(lane.dtype());
  }
}

void Attending::read_from(const Arrays& lanes, const Arrays& apart, const Ints& starts, const Ints& counts, const Ints& bases,
                          const Ints& edges, const Ints& stops, int first, Arrays& in) {
  const size_t count = rows.size();
  want(first >= 0 && starts.size() == count && counts.size() == count && bases.size() == count && edges.size() == count &&
           stops.size() == count,
       "there is a start, a count, a base, an edge and a stop for each row");
  this->first = first, this->lanes = in.size();
  const int slots = add_lanes(lanes, first + (int)count, in);
  int more = 0;
  if (!apart.empty()) this->apart = in.size(), more = add_lanes(apart, (int)count, in);
  for (size_t b = 0; b < count; b++) {
    const int64_t start = starts[b], base = bases[b], own = counts[b], stop = stops[b], edge = apart.empty() ? FAR : edges[b];
    want(base >= 0 && start >= 0 && stop >= base && own >= 0 && own <= width, "positions are not negative, and a row has no more queries than the step is wide");
    want((stop < edge ? stop : edge) - base <= slots && (stop <= edge || stop - edge <= more), "a row's positions lie in its slots");
    want(mask < 0 || in[mask].shape(3) >= stop - base, "the mask says something about every key");
    rows[b] = {start, base, edge, stop, (int)own};
  }
}

void Attending::see(const Attending& donor) {
  want(donor.writes && donor.by.groups == by.groups && donor.by.keys.like(by.keys) && donor.by.values.like(by.values) &&
           donor.by.values_in_keys == by.values_in_keys && donor.rows.size() == rows.size() && donor.width == width,
       "one that sees what another has written must know the same lanes");
  rows = donor.rows, first = donor.first, lanes = donor.lanes, written = donor.written;
  writes = true, beside = donor.beside, later = true;
}

void Attending::add_factors(const Maybe& given, Arrays& in) {
  if (!given) return;
  want_float(*given, "factors of queries");
  want(given->ndim() == 2 && (given->shape(0) == 1 || given->shape(0) == (int)rows.size()) && given->shape(1) == width,
       "factors of queries are [rows or 1, tokens]");
  factors = in.size(), in.push_back(*given);
}

Factors Attending::factors_of(const Arrays& in, mx::Stream stream) const {
  if (factors < 0) return {};
  const Array given = dense(in[factors], stream);
  return {given.data<float>(), given.shape(0) == 1 ? 0 : (size_t)width};
}

Attending Attending::behind(int more, int table) const {
  Attending next = *this;
  next.width = 1, next.table = table, next.turn = more, next.later = true;
  for (mk_row& row : next.rows) {
    const int64_t start = row.stop + more;
    row = {start, row.base, FAR, start + 1, 1};
  }
  return next;
}

void Attending::set(mk_attention& a, const Arrays& in, Arrays& out, mx::Stream stream) const {
  a.rows = (int)rows.size(), a.width = width, a.row = rows.data();
  a.heads = by.heads, a.groups = by.groups, a.size = by.keys.size, a.value_size = by.values.size;
  a.scale = by.scale, a.softcap = by.softcap, a.before = by.before, a.ahead = by.ahead, a.chunk = by.chunk;
  a.values_in_keys = by.values_in_keys, a.traditional = by.traditional, a.writes_beside = beside;
  if (table >= 0) {
    const Array turns = dense(in[table], stream);
    a.turns = turns.data<float>() + (ptrdiff_t)turn * turns.shape(2), a.pairs = turns.shape(2) / 2, a.turns_row = turns.shape(0) == 1 ? 0 : turns.size() / turns.shape(0);
  }
  if (sinks >= 0) a.sinks = dense(in[sinks], stream).data<float>();
  if (mask >= 0) {
    const Array& given = in[mask];
    auto stride = [&](int axis) { return given.shape(axis) == 1 ? 0 : (ptrdiff_t)given.strides(axis); };
    a.mask = given.data<char>(), a.mask_is_bool = given.dtype() == mx::bool_;
    a.mask_row = stride(0), a.mask_head = stride(1), a.mask_token = stride(2), a.mask_key = stride(3);
  }
  const Array *held = &in[lanes], *other = apart < 0 ? held : &in[apart];
  int other_first = apart < 0 ? first : 0;
  if (writes) {
    for (int i = 0; i < by.parts(); i++) {
      if (later) continue;
      if (beside) allocate(out[written + i]);
      else own_lane(in[lanes + i], out[written + i], stream);
    }
    other = &out[written];
    if (beside) other_first = 0;
    else held = other;
  }
  a.keys = kept(by.keys, held, first, stream);
  a.keys_beside = kept(by.keys, other, other_first, stream);
  if (by.values_in_keys) return;
  a.values = kept(by.values, held + by.keys.parts(), first, stream);
  a.values_beside = kept(by.values, other + by.keys.parts(), other_first, stream);
}
}  // namespace modelkit
