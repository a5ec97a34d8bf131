"""What is said of a stored package, to whoever asks: `modelkit show` and `list`, and the server."""
