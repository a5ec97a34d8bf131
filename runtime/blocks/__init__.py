"""Weights in GGUF's blocks: a row is cut into blocks of 32 to 256 numbers, each with scales of its own.

`types` says how large the blocks of each type are, and imports nothing. Everything else here turns blocks
into numbers, or into the packed layout of MLX, exactly.
"""
