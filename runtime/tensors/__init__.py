"""What families say of the tensors in their files: names, forms in which experts are stored, and formats that
suit them.
"""
