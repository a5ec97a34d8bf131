"""Multimodal models whose text model is one of the other families': run as that, under the wrapper's names.

A wrapper adds towers, and projectors from these into the embedding; of text it changes nothing. Where tokens
have positions on three axes (M-RoPE), all three count alike for text, which is the plain rotation. What a
text model's own class does to its logits (Cohere's and Granite's scale) transformers' wrappers leave out, and
so does this: the likeliest token is the same one.

wrappers       a row for each wrapper: whose word on tying counts, what its names begin with
text_models    which family computes a wrapper's text model, and what its files leave out
alone          the text model's own config
towers         what is for pictures and sound, by its names
wrapped        the family, `FAMILY`, that runs a wrapper as its text model's
"""

from runtime.models.multimodal.wrapped import FAMILY

__all__ = ["FAMILY"]
