"""docs/models.md lists what the program runs."""

from runtime.models import ARCHITECTURES
from tests.support.models_table import PAGE
from tests.support.parity import Reference


def test_every_reference_and_every_name_is_listed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = [name for name in Reference.names() if f"| {name} |" not in page]
    missing += [name for name in ARCHITECTURES if f"`{name}`" not in page]
    assert not missing, "run python -m tests.support.models_table"
