"""Adapters (LoRA, DoRA and what comes with them) in a network that runs.

low_rank    what an adapter brings, as values
fusion      the definition: a pair and a weight as one
adapter     an adapter brought to one network
stacks      all adapters in memory, in one stack per module
rows        the adapters of a step's rows
"""
