"""Rows of source tensors become the bytes of a package, and stream into its files.

conversion                  one model's weights: copied, converted, or known from an earlier time
write                       a planned file, header first
reader                      bytes of source tensors
transform                   rows of any source -> bytes of output tensors
blocks, codes, small_floats GGUF's blocks; whole-number codes; 8- and 4-bit floats
fp4, nvfp4_range            MXFP4 and NVFP4 by lookup; numbers that NVFP4 does not have
numbers                     NaN and infinity in weights that are copied
tuning                      scales and biases that `quality` has tuned
arrays                      planned weights as arrays in memory, for running a file as it is
"""
