"""Requests and responses as bytes: sockets, connections, bodies, and what every request passes."""
