"""Logits to tokens, for rows that each have parameters of their own.

params, ranges           one row's parameters; what values each may have
sampler, group           all rows of a step; those that can be drawn in one pass
penalties, filters       repetition penalties; top-k, top-p, min-p, typical
distribution             the ids that are left, with their log-weights
noise                    Gumbel noise by seed, position and id: what makes a draw reproducible
constraint               masks of a grammar
rejection                rejection sampling of drafts
logprobs                 log-probabilities that are returned to users
"""
