"""The lower floor: arrays and token ids. Nothing here knows text, files' meaning to users, or sockets.

    models         one file for each family of models: config, network, layer memory, tensor names
    trunks, nn     the networks that families are made of, and their layers and operations
    parts          what a sublayer consists of, as data for kernels that compute one in a single node
    config         reading config.json; `tensors`: what families say of the tensors in their files
    cpu            MLX on a processor: kernels of our own, BLAS, threads
    cache          what layers remember: key-value caches, recurrent states, the prefix cache
    blocks         GGUF's block formats; `quant`: the table of weight formats
    weights        tensors into modules, in which form, and how many bytes that takes
    loading        a checkpoint becomes a model in memory: the plan, its forecast, the load
    loaded         a model in memory; `embedding`: vectors of texts
    sampling       logits to tokens
    speculate      speculative decoding: drafters, and how far they draft
    engine         requests in, tokens out, many rows at once
    ranks          one model on several machines
    quality        what fewer bits per weight cost, measured
    step           one forward pass, as layers see it
    device, host   what computes here, and what the system grants; `streams`, `forks`: MLX and threads
    records        a `dataclass` that is quick to import; `errors`: what can go wrong on this floor
    quoting        what comes from outside, as a message shows it

Shapes of arrays are in capitals. Unless a text says otherwise: B rows, L tokens of each in a step, T tokens
of a whole text, D hidden size, H heads, E experts, V vocabulary.

`modelkit` stands on this package; it never imports `modelkit`. Users import `modelkit` only.
"""

# `runtime` is a common name: modelkit checks this mark to know that the package it got is its own.
PART_OF = "modelkit-mlx"
