"""What a model answers, as values and as it comes."""
