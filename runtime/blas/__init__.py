"""A fast BLAS under MLX on Linux CPU, whose own wheel links the reference one.

slots   where a loaded library keeps the addresses of the functions it imports
gemv    a few machine instructions that send one-row products to the matrix-vector routine
bind    the decision, the self-test and the report
threads how many threads a step's products get
"""
