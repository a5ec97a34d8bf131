"""An inventory and a wanted format become a plan: the fate of every tensor. No weight is read."""
