"""What networks and their sublayers consist of: the modules and numbers by which the table's operations
compute them, as one operation or part by part.

attention      queries, keys and values over a layer's memory, latents included
recurrent      what folds over tokens
feed_forward   dense blocks, experts, and how experts are chosen
streams        what is done to the residual stream, or to several of them
decoder        a whole network from ids to logits
draws          how the tokens behind are drawn
rotary, heads  how heads are turned and attend

A network describes itself so (`runtime.nn.residual.sublayer`). Modules are those of
`runtime.nn.operations.signatures.Operations`.

Fields that several descriptions share; x is the residual stream:

norm: an RMS or a layer norm of x, or None for none.
norm_scale: what the norm gives is multiplied by this number.
after: an RMS norm of the answer, or None.
share: the answer is multiplied by it before it is added to x; 1 where there is a norm after it.
beside: the sublayer reads what the one before it read, and is added to what that one gave.
sums: the kernels' sums over ranks that have a part of the sublayer each (`Ring.sums` of
    `runtime.ranks.ring`), taken of the answer before anything else is done with it.
low: for each opening module the two matrices of a product of low rank that is added to its own, or None.
"""
