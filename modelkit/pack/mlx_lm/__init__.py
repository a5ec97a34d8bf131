"""`export --form mlx-lm`: the same model in the names, shapes and fields that mlx-lm's classes ask for.

    pieces          tensors of the written files, and where their bytes come from
    mutable_folder  the names, pieces and config.json of a folder that is being planned
    limits          what mlx-lm does otherwise with a package, as data; `conditions`: conditions of its rows
    fixes           for sentences of `limits`: what has to be written so that they do not hold
    additions, experts, latent, names, numbers  the fixes themselves
    rewriting       which fixes a package needs, and what is left to say

Decided from headers and config.json alone. A fix changes what is written, never what is computed: where
mlx-lm's class cannot compute the model, nothing is changed and the sentence stays.
"""
