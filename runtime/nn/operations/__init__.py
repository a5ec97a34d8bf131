"""The table of operations: each operation that networks compute by, in several columns.

ops                  which column computes: `ops.table`
signatures           what a column has: each operation, what it takes and what it gives
plain, gpu           two of the columns: definitions, and MLX's fused kernels (others: `runtime.cpu`)
cached_attention     attention over layer memory, by a column's own rotation and attention
recurrent            what recurrent layers compute, by a column's own activations and norms
"""
