"""The source room: somebody else's model, read with suspicion.

    tree                     names and files; nothing from outside becomes a path
    strict_json, sniff       JSON and first bytes, bounded and judged
    tensor, safetensors      headers that are exact or refused
    shards, companion_files  which files are the weights, which to keep, which stay behind and why
    inventory                all of the above for one source
    prequantized             what the weights already are, or refused by name: `claims`, `foreign`, `fp8`,
                             `bitnet`, `mlx_block`, `mlx_layout`
    hub_cache                folders of huggingface_hub's cache, by their names
    gguf                     GGUF files
    codes                    weights of GPTQ, AWQ, compressed-tensors and others
    vocabularies             tokenizers in other files than tokenizer.json
    adapters                 adapters of PEFT, mlx-lm and GGUF

Reads headers and configuration only, and imports neither MLX nor numpy.
"""
