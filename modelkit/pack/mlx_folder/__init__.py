"""Export to a folder for MLX tools: what only modelkit reads becomes what all of them read.

`plan` decides from headers and config.json what has to be written anew; `shard` makes the bytes of a file.
"""
