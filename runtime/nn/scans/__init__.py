"""Recurrences over tokens, as functions of arrays: what recurrent layers compute between their projections.

Each takes the state before a step and gives its answers and the state after each row's last real token.

chunks            padding in ragged steps, and steps cut into chunks
linear_scan       h = a h + b, elementwise
causal_conv       short convolutions over time
selective_scan    Mamba's state space; `ssd`: Mamba-2's
gated_delta       the gated delta rule; `channel_delta`: with a decay for every key channel
wkv4, wkv6, wkv7  RWKV's, by its generations
"""
