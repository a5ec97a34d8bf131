"""Layer memory: what the layers of a model remember of each row, and of earlier sequences.

What a layer is given:
    layout        what each layer remembers, as data: `LayerSpec`; no MLX
    protocol      the contract that every kind of memory keeps (`LayerCache`)
    build         a layout -> one cache per layer
    memory        what is done to the caches of all layers together (`LayerMemory`)
    attention     keys and values: everything, a sliding window, or a chunk
    recurrent     the state of a recurrent layer
    pooled        one vector for each group of tokens
    encoder       keys and values of an encoder's output
    remote        the lengths and sizes of layers that another machine has
What these are made of:
    rows, lengths          which positions a row holds
    buffer, lanes, pieces  their arrays: slots for tokens, views for kernels, states by ranges of rows
    codec                  keys and values as floats, or packed
    visibility             which keys a step's queries see: slices and masks
    finite_values          NaN in one token's keys and values stays with those who attend to it
    budget, claims         how many bytes all of it may take, and what rows have taken
    shift                  which tokens a full context forgets
What outlives a row (the prefix cache):
    snapshot, pages  one layer's copy of a range of positions; that of all layers
    trie, prefix     the radix tree of pages; what is kept, and what goes when memory is short
    sharing, marks   where a row starts from it, and where a prompt is stored in it
    restore          a row put back layer by layer
    prompts          the same for what an encoder reads
    disk_pages, page_folder, page_files, page_tensors  pages on disk

Nothing here knows a network; `runtime.nn.attention.attend` and recurrent layers call it.
"""
