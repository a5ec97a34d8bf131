"""A package written as one GGUF file, which llama.cpp and its kin run.

    tensors      the package's tensors under flat names, each with how its rows are packed
    type_choice  which GGUF type holds a packed matrix exactly, or comes nearest
    plan         every tensor of the file: its type, where its rows come from, and what becomes of the numbers
    rows         rows of the package as rows of blocks, some megabytes at a time
    vocabulary   the tokenizer as metadata
    splitting_name  what GGUF files call the way in which a tokenizer cuts text
    same_ids     the proof that a tokenizer comes back
    embedding    how texts become vectors, as metadata
    spellings    tensors under the names that the table of architectures knows
    read_back    would an import of the file compute the same model
    llama_cpp_limits  what llama.cpp does otherwise with a file that says it all, as data
    llama_cpp_conditions  conditions of its rows
    metadata     name, licence, provenance, sampling
    export       all of it, for one file
    writing      the file: complete under its name, or not there

Names, metadata and the order of rows are those of `source.gguf.architectures`; the blocks are of
`runtime.blocks`.
"""
