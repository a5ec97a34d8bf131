"""Layers and operations that networks are made of (`runtime.models`, `runtime.trunks`).

The table of operations:
    ops, operations    the columns and which of them computes; what a column consists of
    plain, fused       two of the columns: definitions, and MLX's fused kernels (others: `runtime.cpu`)
    linear, viewed     calling a matrix so that adapters see the step; attention over cached arrays
    module, layer                          the base class of modules; the call of a layer
    build_network, ready                   networks before and after their weights are loaded
    stored, blocks, ordered                weights that stay as stored, GGUF's blocks, reordered inputs
    rounded                                inputs rounded to 8 bits
Wiring:
    block, sublayer, recurrent_parts    norms, attention and MLP around the residual stream
    hyper, mixed_streams                several residual streams
    norm, gated_norm, activation
Attention:
    attend, attending                               over a layer's memory; its sublayer
    self_attention, fused_attention, gated_attention, bidirectional, joint
    mla, gated_latent, compressed                   latent and compressed keys
    indexer, block_indexer, block_choice, block_sparse    sparse attention
    rope, rope_spec, sharpen, alibi, relative, waves      positions
Feed-forward:
    mlp, own_gate                dense
    moe, sparse, route           experts and routing
    ngram, ngram_places          tables of n-grams
    dense                        Dense modules of sentence-transformers
Recurrent layers:
    mamba1, selective_scan, mamba2, ssd             state spaces
    delta_net, gated_delta, kimi_delta, channel_delta    delta rules
    lightning, mlstm, rg_lru, wkv4, wkv6, wkv7      other recurrences
    conv, causal_conv, scans, linear_scan, chunks   what they share
Adapters:
    low_rank, fused_pairs                     their values; the formula for a pair and a weight as one
    adapters, adapter_stacks, row_adapters    in a network, in memory, for the rows of a step
"""
