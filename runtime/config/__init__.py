"""config.json, read with suspicion.

fields       one config's fields by name, type and range: what every family's `parse` reads through
spellings    other names of the same fields, from transformers' `attribute_map`
document     what is checked of every config.json before any family reads it
text         where a multimodal config keeps the fields of its text model
rope_block   which block of a config describes rotary positions, and that its fields are sound
decoder, latent, mamba, indexer, expert_groups    fields that many families have in common
"""
