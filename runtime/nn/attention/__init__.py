"""Attention over a layer's memory, and the sublayers that attend.

attend                what all call: over a layer's memory, by the table of operations
attention_sublayer    what the sublayers have in common
self_attention        grouped queries, as most decoders have them
fused_attention       one matrix for queries, keys and values
gated_attention       heads with gates
mla, gated_mla        multi-head latent attention, and gates beside it
bidirectional, joint  encoders; a decoder's own tokens together with what an encoder left
Sparse attention:
indexer               which tokens a query looks at (DeepSeek); `block_indexer`: which blocks
block_choice          blocks of keys that each group of heads chooses; `block_sparse`: by a fixed pattern
compressed            a window of tokens, and vectors that many tokens were made into (DeepSeek V4)
"""
