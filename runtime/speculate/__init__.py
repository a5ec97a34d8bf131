"""Speculative decoding: who drafts (drafters), and how far (depth).

Verification needs no room of its own: the target draws its own token at every place of the block with the
same position-keyed noise that plain decoding would use, and a draft is accepted while it equals that draw. So
every emitted token is the target's, whatever was proposed.

    drafting              what the engine talks to; `round`: one step of the target with drafts
    drafter               what every drafter does
    draft_model, head, assistant, block  drafters with a network: a small model, a draft head, Gemma 4's
                          assistant, block diffusion
    ngram, forced_tokens  drafters without one: prompt lookup, tokens that a grammar leaves no choice about
    pair                  which drafters a target gets, and why a draft does not fit
    chain, lines          what drafters with a network share: drawing drafts, notes for each place
    standby               drafters that give way when memory is short
How far, and whether at all (pure):
    depth                  the decision for the next round
    learner                what is known of all drafters: `costs`, `acceptance`; `lessons` outlive the process
    audition               trying a drafter beside plain decoding
    clock                  how long a step took on a busy machine
"""
