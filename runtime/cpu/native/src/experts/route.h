/* Routing: which experts a row asks, by its scores, and how much each answer counts (`runtime.nn.feed_forward.router`). */
#pragma once

enum mk_gates {
  MK_GATES_SOFTMAX, /* probabilities among all experts */
  MK_GATES_BEST,    /* a softmax over those that are chosen */
  MK_GATES_SIGMOID, /* each by itself */
  MK_GATES_LATE,    /* each by itself, of those that are chosen by their scores */
  MK_GATES_NEAR,    /* one after the other: a softmax over those nearly as good as it, without those chosen before */
};

struct mk_routing {
  enum mk_gates gates;
  int experts, each;       /* all, and those that a row asks */
  int groups, top_groups;  /* equal groups, and how many of them are open: those whose best experts sum highest */
  int judges;              /* so many of the best, one or two */
  int normalize;           /* weights are brought to a sum of one */
  float scale;             /* and then multiplied */
  float least;             /* what the sum that they are divided by is at least */
  const float* correction; /* [experts], added to gates for the choice alone; or NULL */
  const float* shares;     /* [experts], by which weights are multiplied at last; or NULL */
  float nearness;          /* of near gates: how much worse, relatively, an expert may be */
};

#ifdef __cplusplus
extern "C" {
#endif
/* scores [rows][experts] -> chosen, weights [rows][each], the best first; of equal ones the first one. */
void mk_route(const struct mk_routing* by, const float* scores, int rows, int* chosen, float* weights);
#ifdef __cplusplus
}
#endif
