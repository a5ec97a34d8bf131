"""Guessing several tokens ahead: who proposes (drafters), and how far (depth).

Verification needs no room of its own: the target draws its own token at every place of the block with the
same position-keyed noise that plain decoding would use, and a draft is accepted while it equals that draw. So
every emitted token is the target's, whatever was proposed.
"""
