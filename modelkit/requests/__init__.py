"""What is asked of a model: a prompt, options, and the adapters that answer."""
