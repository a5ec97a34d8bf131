"""What a family of models is: the record with which its file ends, and what makes families of others.

record            `Family`: all that anybody asks of a family; `Network`: the modules that it builds
headless          a family's network without its output head, for embeddings
both_ways         a family's network with attention in both directions, for embeddings
rotary_encoder    encoders that are alike but for biases and gates (Nomic BERT, GTE, Jina)
"""

from runtime.models.family.record import CORRECTIONS, RATES, Config, Family, Head, Network, Reader

__all__ = ["CORRECTIONS", "RATES", "Config", "Family", "Head", "Network", "Reader"]
