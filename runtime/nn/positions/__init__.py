"""How attention knows where tokens stand.

rope                     rotary positions, at the positions of a step
rope_spec                what they are rotated by, read from a config
relative_bias, alibi     biases on scores, by distance
sinusoids                sines and cosines that are added to embeddings
attention_temperature    queries that grow with their position
"""
