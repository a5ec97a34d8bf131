"""The processor wing: what makes MLX fast on Linux CPU, whose wheel links the reference BLAS and has no fused
kernels.

bind       a fast BLAS under MLX's products: the decision, the self-test and the report
slots      where a loaded library keeps the addresses of the functions it imports
gemv       a few machine instructions that send one-row products to the matrix-vector routine
threads    how many threads a step's products get
activation, folded, turn   operations in few nodes: activations, attention, rotation

Numbers only: no module and no model is known here.
"""

from runtime.cpu.bind import BlasReport, bind_blas, report, set_threads
from runtime.cpu.threads import threads_now

__all__ = ["BlasReport", "bind_blas", "report", "set_threads", "threads_now"]
