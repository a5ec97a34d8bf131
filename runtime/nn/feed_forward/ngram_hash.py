"""Where a table has a place for the last few tokens together, as numbers that follow from a config.

Each head looks up n-grams of one length, from 2 to N. It makes one number of the last n tokens, and that
number modulo a prime of its own is a place in its part of one table:

    (id m[0] xor id before m[1] xor ...) mod prime + where the head's part begins

Tokens before the first of a row, and those up to and with an end of text before the token, count as such an
end. No MLX here. Source: transformers modeling_qwen4_exp.py.
"""

import math

from runtime.cache.layout import Recurrent, State
from runtime.records import dataclass

MOST_HEADS = 1024
"""Of all tables. Each has a prime to be looked for."""


@dataclass(frozen=True, slots=True)
class Ngrams:
    """How n-grams become places in a table. Letters are those of the text above."""

    longest: int
    """N."""
    each: int
    """Heads for each length."""
    place: int
    """Which of the layers with a table it is: each goes on behind the primes of those before."""
    vocab: int
    """Ids that a token may have."""
    least: int
    """The first prime is no smaller."""
    padded_to: int
    """The table's rows are a multiple of this."""
    seed: int
    """Of the multipliers m."""
    end: int
    """The id of an end of text."""

    @property
    def heads(self) -> int:
        return (self.longest - 1) * self.each

    @property
    def primes(self) -> list[int]:
        """One of each head."""
        found, number = list[int](), self.least
        while len(found) < (self.place + 1) * self.heads:
            if _is_prime(number):
                found.append(number)
            number += 1
        return found[self.place * self.heads :]

    @property
    def rows(self) -> int:
        """Of the table."""
        return math.ceil(sum(self.primes) / self.padded_to) * self.padded_to

    @property
    def multipliers(self) -> list[int]:
        """Odd ones, so small that an id times one of them has 63 bits."""
        half = max(1, (2**63 - 1) // self.vocab // 2)
        first = self.seed + 10007 * self.place
        return [2 * (_split_mix(first + _GOLDEN * (i + 1)) % half) + 1 for i in range(self.longest)]

    @property
    def memory(self) -> Recurrent:
        """The last ids, each plus 1: 0 is where there was none."""
        return Recurrent({"ids": State((self.longest - 1, 1), "float32")})

    def constants(self) -> dict[str, list[int]]:
        """By the names under which files have them."""
        primes = self.primes
        return {
            "layer_multipliers": self.multipliers,
            "ngram_heads_vocab_sizes": primes,
            "ngram_heads_offsets": [sum(primes[:i]) for i in range(len(primes))],
        }


_GOLDEN, _WORD = 0x9E3779B97F4A7C15, (1 << 64) - 1


def _split_mix(value: int) -> int:
    """SplitMix64 (Steele and others, 2014)."""
    value = (value + _GOLDEN) & _WORD
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _WORD
    return value ^ (value >> 31)


def _is_prime(number: int) -> bool:
    if number < 4:
        return number > 1
    return number % 2 == 1 and all(number % by for by in range(3, math.isqrt(number) + 1, 2))
