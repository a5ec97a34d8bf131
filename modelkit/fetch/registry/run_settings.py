"""What the config of Docker's models says of how they are run: `context_size`, in tokens.

Source: docker/model-spec, config.md; what Docker Model Runner calls `config.context_size`.
"""

from typing import Any

from modelkit.errors import ParameterError, StoreError
from modelkit.fetch.ollama import Belongings
from modelkit.modelfile import Directive
from modelkit.modelfile.parameters import check_parameter
from modelkit.store.canonical import parse_object
from modelkit.store.manifest import MANIFEST_LIMIT_BYTES


def settings_of(raw: bytes) -> Belongings:
    """As lines of a Modelfile; a size that none can have is noted. raw: a stranger's."""
    size = _context_size(raw)
    if size is None:
        return Belongings((), ())
    try:
        check_parameter("num_ctx", size)
    except ParameterError as error:
        return Belongings((), (f"the config's context_size is not used: {error.message}",))
    return Belongings((Directive("PARAMETER", str(size), name="num_ctx"),), ())


def _context_size(raw: bytes) -> object:
    """None where it says none."""
    try:
        config: Any = parse_object(raw, "the package's config", MANIFEST_LIMIT_BYTES).get("config")
    except StoreError:
        return None
    return config.get("context_size") if isinstance(config, dict) else None
