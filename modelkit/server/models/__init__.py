"""The models that a server has loaded: who may use them, which stay, and how they come and go.

pool          loaded models by name; `acquire` lends one
model_source  where they come from: the packages of the store
residents     which stay in memory and which may come: a pure decision
shares        how much memory the conversations of each get: a pure decision
moves         what was decided, done; `loading`: one model on its way into memory
pool_entry    one model, as the pool knows it
turns         who may start on a model next
tally         counts for `/metrics`
"""
