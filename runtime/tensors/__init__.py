"""What families say of the tensors in their files.

names         checkpoint names -> those used here
checkpoint    all that is particular to a family's files, as a record
towers        parts of multimodal checkpoints that are not text
experts       stacks of experts, in the forms that files store them in
latent_heads  heads of latent attention, which files join
joined_rows   matrices that are stored apart and used as one
quantizing    which weight formats suit which tensors: rows of a table
"""
