"""What each token goes through alone: MLPs, mixtures of experts, and tables.

mlp, custom_gate     dense blocks; gates that kernels do not know
moe                  mixture of experts: a router, experts, and experts that always answer
router, experts      which experts a token asks, and how much each answer counts; stacks of experts
ngram, ngram_hash    embeddings of the last few tokens together, and where tables have them
dense                layers behind the pooling of texts (sentence-transformers' Dense)
"""
