"""Sublayers that fold over tokens. What they fold by is in `runtime.nn.scans`.

mamba1, mamba2           state spaces
delta_net, kimi_delta    gated delta rules: Qwen3-Next, Kimi Linear
lightning, mlstm, rg_lru linear attention with a decay (MiniMax), xLSTM's matrix memory, Griffin's recurrence
conv                     short convolutions before them
parts                    how kernels have these sublayers described
"""
