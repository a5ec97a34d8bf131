"""Networks before and after their weights are loaded.

build_network      a network whose weights are yet to come
as_stored          which weights may stay as they are stored
act_order          packed matrices whose inputs are in another order (GPTQ)
embedding_types    the type in which tables answer, once weights are in place
"""
