"""What is said of a stored package, to whoever asks: `modelkit show` and `list`, and the server.

facts       what a package holds, as JSON
texts       its texts, and the Modelfile that makes it again
row         a package in one line
planning    how several machines would run it
"""
