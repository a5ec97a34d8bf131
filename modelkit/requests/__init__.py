"""What is asked of a model.

prompt      conversations as text and tokens
options     everything that a request may say beside its prompt
attached    which adapters answer, and at what scales
"""
