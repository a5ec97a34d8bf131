"""The source room: somebody else's model, read with suspicion.

    tree, display            names and files; nothing from outside becomes a path
    strict_json, sniff       JSON and first bytes, bounded and judged
    tensor, safetensors      headers that are exact or refused
    shards, belongings       which files are the weights, which to keep, which stay behind and why
    inventory                all of the above for one source
    claims, foreign, fp8,    what the weights already are: floats, MLX's packing, FP8, GPT-OSS blocks,
    mlx_block, mlx_layout,   or refused by name
    prequantized

Reads headers and configuration only, and imports neither MLX nor numpy.
"""
