"""Rows of source tensors become the bytes of a package, and streams into its files."""
