"""`export --form mlx-lm`: the same model in the names, shapes and fields that mlx-lm's classes ask for.

    pieces     tensors of the written files, and where their bytes come from
    sheet      the names, pieces and config.json of a folder that is being planned
    limits     what mlx-lm does otherwise with a package, as data; `when`: conditions of its rows
    mends      for sentences of `limits`: what has to be written so that they do not hold
    added, experts, latent, names, numbers    the mends themselves
    rewriting  which mends a package needs, and what is left to say

Decided from headers and config.json alone. A mend changes what is written, never what is computed: where
mlx-lm's class cannot compute the model, nothing is changed and the sentence stays.
"""
