"""Adapters on their way into a package: placed in the target's network, stored in one form, or fused.

selection, package_adapters  which adapters a package gets
place, orientation  names of a checkpoint -> which modules of the network an adapter changes
shared_blocks, shared_table  blocks that several layers run; the table of encoder and decoder
normed_tables       tables whose module norms their rows
whole_parameters    layers, tables and heads that come whole
texts_beside        templates and tokenizers that lie beside one
towers, own_head    parts that do not run; heads that are tied to the embedding
filled, words       its numbers, moved to where they belong; as they are stored
attachment          will the network take it
stored              an adapter as a package holds it
fusion_plan, fusion_sites, fusion  adapters in the target's weights: which, where, and their numbers
export, exported, forms, as_peft, as_mlx_lm, peft_names, checkpoint_form  adapters for other programs
"""
