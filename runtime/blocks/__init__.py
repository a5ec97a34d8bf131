"""Weights in GGUF's blocks: a row is cut into blocks of 32 to 256 numbers, each with scales of its own.

    types       how many numbers and bytes a block of each type has; imports nothing
    forms       in which form a package keeps each type: MLX's packing, or the blocks as they are
    groups      what all types have in common: codes, and a scale and an offset for each group of them
    legacy, k_quants, i_quants    readers of the types, by ggml's three generations
    decode      blocks -> numbers, or MLX's packing of the same numbers (lazy)
    repack      blocks -> MLX's packing, in numpy, while a file is copied
    encode      MLX's packing -> blocks, for GGUF files that are written
    stored      packages that keep blocks as they are, and what a network holds of them
    finite      blocks whose scales are NaN or infinite
    bits        masks of a 64-bit word, by which codes of a few bits are moved together

Whatever is converted here keeps its numbers exactly.
"""
