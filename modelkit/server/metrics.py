"""What the server counts, as Prometheus reads it."""

from modelkit.server.trace import Trace


class Metrics:
    """On the event loop's thread only."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, str], int] = {}

    def request(self, trace: Trace) -> None:
        """A request has ended."""
        key = (trace.dialect, str(trace.status), trace.finish)
        self.requests[key] = self.requests.get(key, 0) + 1

    def text(self) -> str:
        lines = ["# TYPE modelkit_requests_total counter"]
        lines += [
            f'modelkit_requests_total{{dialect="{dialect}",status="{status}",finish="{finish}"}} {count}'
            for (dialect, status, finish), count in sorted(self.requests.items())
        ]
        return "\n".join(lines) + "\n"
