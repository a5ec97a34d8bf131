"""What a person sees, and how what a person types is read."""
