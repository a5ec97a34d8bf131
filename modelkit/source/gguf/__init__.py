"""GGUF files: what llama.cpp and its kin run, read with suspicion.

    types             numbers of block types, and those that are refused by name
    cursor, values    the bytes of a header, metadata values; nothing is allocated that was not checked
    header, file      one file, or all shards of one model: metadata and where each tensor lies
    checkpoint        a file as a checkpoint: config, names, tokenizer files; `folder` finds the file
    heads, lone_head  a draft head in a file of its own, and its model's file: one model
    architectures     names and numbers of llama.cpp's architectures as those of transformers
    vocabulary        tokenizer.json and the files beside it, made of metadata
    modules           how texts become vectors, as files of sentence-transformers
    header_bytes      the header of a file that is written

Reads headers only. What the blocks stand for is `runtime.blocks`; nothing here imports MLX or numpy.
"""
