"""Logits to tokens, for rows that each have parameters of their own.

params, ranges           one row's parameters; what values each may have
sampler, group, kinds    all rows of a step; those that can be drawn in one pass; what work a row wants
penalties                repeat, presence and frequency
dry, breakers            repetitions, and what they are not followed across
ends                     answers of a least length
filters                  top-n-sigma, top-k, typical, top-p, min-p, XTC; temperatures by entropy
distribution             the ids that are left, with their log-weights
noise                    Gumbel noise by seed, position and id: what makes a draw reproducible
constraint               masks of a grammar
rejection                rejection sampling of drafts
logprobs                 log-probabilities that are returned to users
"""
