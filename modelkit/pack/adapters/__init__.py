"""Adapters on their way into a package: placed in the target's network, stored in one form, or fused.

words       a tensor's numbers as they are stored
oriented    which matrix a pair is for, and which way round
place       what an adapter says, by names of checkpoints -> which modules of the network it changes
filled      its numbers, moved to where they belong: the tensors of `runtime.nn.low_rank`
taken_back  and back to where a checkpoint has the matrices, for other programs (`export`)
"""
