"""config.json, read with suspicion: `fields` reads every field of every family, and what many families say
alike stands beside it (`decoder`, `latent`, `mamba`, `indexer`, `expert_groups`).
"""
