"""The models that a server has loaded: who may use them, which stay, and how they come and go."""
