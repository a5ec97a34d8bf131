"""Words in which codes of a few bits are moved together, by MLX (`decode`) and by numpy (`repack`)."""


def low_bits(ones: int, every: int) -> int:
    """A word of 64 bits with the lowest `ones` of every `every` set."""
    return sum(((1 << ones) - 1) << at for at in range(0, 64, every))
