"""Adapters as people have them: folders of PEFT and of mlx-lm, GGUF files. From headers alone.

    value        what an adapter says, whoever wrote it: pairs, whole tensors, rows, by names of checkpoints
    reading      which of the three a path is
    peft, peft_config, mlx, gguf

Names are those of a checkpoint, so that an adapter goes through what its family does to weights
(`runtime.loading.row_trace`). What would change numbers and is not known here is refused by its name.
"""
