"""Requests and responses as bytes: sockets, connections, bodies, and what every request passes.

place, listening     where the server listens, and from its start to its end
protocol, target     one connection; the request line
gate                 what every request passes before a route sees it
body                 a request's body, bounded
writing              answers as JSON
own_headers          our own headers: what was asked for and changed nothing
not_found            paths that no route has
"""
