"""What stands behind a loaded model, from its start to its end."""
