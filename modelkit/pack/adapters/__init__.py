"""Adapters on their way into a package: placed in the target's network, stored in one form, or fused.

named, carried        which adapters a package gets
place, oriented       names of a checkpoint -> which modules of the network an adapter changes
repeated, saved, towers, own_head    blocks that several layers run; whole layers; parts that do not run;
                      heads that are tied to the embedding
filled, words         its numbers, moved to where they belong; as they are stored
attachable            will the network take it
stored                an adapter as a package holds it
fused, fusing, fusion adapters in the target's weights: which, where, and their numbers
export, exported, forms, as_peft, as_mlx_lm, peft_names, taken_back    adapters for other programs
"""
