"""What storing a model in fewer bits costs: measured and foreseen, in numbers alone.

own_text     tokens that a model writes itself, the text on which all else is measured
reading      one forward pass over a sequence, as it is differentiated and compared
watch        stands behind every matrix of a network and sees what goes in and comes out
fisher       one backward pass: how much an error of each weight would cost
errors       what a format does to a matrix, weighted by that
student      the same network with some matrices packed
divergence   how far one network's predictions, or vectors of texts, are from another's
distil       scales and biases tuned until they say what the source says
owners       which stored tensors a network's matrix is made of
acceptance   how often a draft's guess is its target's token

Relies on networks, layer memory and the noise of the sampler. Costs are in nats of KL divergence
per token; of a model that makes vectors, in what a text's cosine lacks of 1.
"""
