// Arrays of whole numbers as nodes read them: ids of tokens, numbers of experts.
#pragma once
#include "graph/node.h"

namespace modelkit {
inline void want_indices(const Array& a, const char* what) {
  if (!mx::issubdtype(a.dtype(), mx::integer)) throw std::invalid_argument(std::string(what) + " must be whole numbers");
}

// Of a dense array.
inline std::vector<int64_t> indices(const Array& a) {
  const auto read = [&](auto type) {
    const auto* p = a.data<decltype(type)>();
    return std::vector<int64_t>(p, p + a.size());
  };
  switch (a.dtype().val()) {
    case mx::Dtype::Val::uint8: return read(uint8_t{});
    case mx::Dtype::Val::uint16: return read(uint16_t{});
    case mx::Dtype::Val::uint32: return read(uint32_t{});
    case mx::Dtype::Val::uint64: return read(uint64_t{});
    case mx::Dtype::Val::int8: return read(int8_t{});
    case mx::Dtype::Val::int16: return read(int16_t{});
    case mx::Dtype::Val::int64: return read(int64_t{});
    default: return read(int32_t{});
  }
}
}  // namespace modelkit
