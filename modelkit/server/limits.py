"""How much one client may take: the defaults, and what each bounds. All of them can be set."""

from modelkit.server.extent import Extent
from runtime.records import dataclass

MEGA = 1024 * 1024
SMALL_BODY_BYTES = 64 * 1024  # which are let in as long as there are connections


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes, counts and seconds."""

    body_bytes: int = 16 * MEGA
    """Of the body of one request. Larger: 413."""
    bodies: int = 16
    """How many bodies of that size there is memory for, of all requests that come or are answered. What comes
    beyond that and is more than small (SMALL_BODY_BYTES): 503.
    """
    body_s: float = 120.0
    """Until a body has come. Longer: 408."""
    depth: int = 96
    """How deep JSON may be nested."""
    extent: Extent = Extent(parts=300_000, values=2_500_000)
    """What JSON may hold: fields, lists and objects, of which a bias for each token of a vocabulary has most;
    and values, of which a list of ids has most. More: 413.
    """
    header_bytes: int = 64 * 1024
    """Of the header lines of one request."""
    header_s: float = 10.0
    """Until they have come, counted from the connection or the request before. Longer: it is closed."""
    idle_s: float = 75.0
    """How long a connection stays open between two requests."""
    connections: int = 1000
    """Open at once. One more is closed at once."""
    waiting: int = 512
    """Requests that wait for one model while others are answered. One more: 503."""
    rows: int = 8
    """Answers to one prompt (`n`)."""
    write_s: float = 60.0
    """How long a client may read nothing of what it is sent. Longer: it is dropped."""
    heartbeat_s: float = 10.0
    """After how long without an event a stream of events gets a comment."""
    grace_s: float = 30.0
    """How long running requests may go on once the server is told to stop."""
    stalled_s: float = 120.0
    """How long an engine with rows may take for one step until /health says so."""
