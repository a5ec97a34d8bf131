// How rows choose experts, as Python says it.
#pragma once
#include "experts/route.h"
#include "graph/node.h"

namespace modelkit {
struct Routing {
  mk_routing by;  // but for the number of experts, their correction and their shares
  std::optional<Array> correction, shares;

  Routing(int gates, int each, const std::optional<Array>& correction, int groups, int top_groups, int judges, bool normalize, float scale,
          float least, const std::optional<Array>& shares, float nearness)
      : by{(mk_gates)gates, 0, each, groups, top_groups, judges, normalize, scale, least, nullptr, nullptr, nearness},
        correction(correction), shares(shares) {
    want(gates >= MK_GATES_SOFTMAX && gates <= MK_GATES_NEAR, "no such gates");
    want(each > 0, "a row asks one expert at least");
    want(groups > 0 && top_groups > 0 && top_groups <= groups, "there are groups, and some of them open");
    want(judges == 1 || judges == 2, "one expert judges a group, or two");
    want(gates != MK_GATES_NEAR || (!correction && !shares && groups == top_groups && !normalize && scale == 1),
         "near gates are weights as they are, of experts that stand in no groups");
    if (correction) want_float(*correction, "a correction");
    if (shares) want_float(*shares, "shares of experts");
  }

  mk_routing among(int experts) const {
    want(by.each <= experts, "a row asks no more experts than there are");
    want(experts % by.groups == 0, "groups must be equal");
    want(!correction || correction->shape() == mx::Shape{experts}, "a correction has one number for each expert");
    want(!shares || shares->shape() == mx::Shape{experts}, "shares have one number for each expert");
    mk_routing all = by;
    all.experts = experts;
    return all;
  }
};
}  // namespace modelkit
