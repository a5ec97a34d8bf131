"""What this server says in its own words, to its own page and its own command line.

chat      conversations and prompts with everything that the Python API has
lines     events as lines of JSON
models    which models are loaded; loading one, unloading one
tokens    `/tokenize`, `/apply-template` and `/props`, in llama.cpp's shapes
"""
