"""Tensors of files into the modules of a network.

files      safetensors files opened: arrays that are not read yet
packing    how matrices of few bits are packed, told by their shapes
fit        modules made as their tensors are; names and shapes compared
holding    in which form tensors are held, how many bytes that takes, and putting them there
"""
