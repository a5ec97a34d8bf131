"""An inventory and a wanted format become a plan: the fate of every tensor. No weight is read.

    plan, plan_types, notes      the whole plan, as values, and what it says of itself
    matrix, policy, families     a matrix, which format it gets and why, and what its family says of that
    outputs, file_layout         the tensors that are written, and their files
    slabs                        where the bytes of a written tensor come from
    config, spelling, renamings  the config.json that goes with it, under old and new names of fields
    omissions, heads             tensors that are left out; those of draft heads
By the form of the source:
    experts, packed_stacks       experts
    imported                     GGUF's blocks
    integer_codes, code_forms    whole-number codes of GPTQ, AWQ and others
    dequantization               MLX's packing, to floats
"""
