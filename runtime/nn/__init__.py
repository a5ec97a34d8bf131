"""Layers and operations that networks are made of (`runtime.models`, `runtime.trunks`).

What everything else here is made of:
    module, layer         the base class of modules; the calls of a layer and of its parts
    linear, blocks        calling a matrix so that adapters see the step; matrices of GGUF's blocks
    norm, gated_norm, activation
    rounding              inputs rounded to 8 bits (BitNet)
Rooms, each of which stands on those above it:
    scans                 recurrences over tokens, as functions of arrays
    operations            the table of operations, by whose columns all modules compute
    positions, residual   rotary positions and biases; norms and sublayers around the residual stream
    attention, feed_forward    sublayers that mix tokens by keys and values; MLPs, experts and their routers
    recurrent             sublayers that fold over tokens
    weights               networks before and after their weights are loaded
    adapters              what LoRA adapters add, for the rows of a step
"""
