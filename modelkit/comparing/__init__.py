"""Two models compared: their predictions of one text and their speed, or their vectors.

models         what is compared: a model by its name or path, with adapters
texts          what they are compared on
predictions    perplexity, KL divergence and speed of models that write
vectors        models that make vectors
"""
