"""A checkpoint becomes a model in memory: decided from headers, then done.

plan         what becomes of each tensor on a device
forecast     what is asked before a load: do the tensors fit, and how many bytes will they take?
load         reads the weights by that plan
step_demand  what a step works with beside weights and layer memory
unused       tensors of a checkpoint that are kept and not run
shapes       what a network holds, and which way round checkpoints hold it
row_trace    where the rows of a checkpoint's tensors arrive in the network
"""
