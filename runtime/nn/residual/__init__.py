"""What is around attention, recurrences and MLPs: norms, and the residual stream that answers are added to.

sublayer             x + after(sublayer(norm(x))), in as few operations as its modules allow
block                sublayers and norms wired to layers
hyper_connections    several residual streams, mixed by what all of them say (DeepSeek V4)
stream_mixer         several residual streams, mixed by each of them (Qwen4)
"""
