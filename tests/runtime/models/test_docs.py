"""docs/models.md lists what the program runs."""

from runtime.models import ARCHITECTURES
from runtime.models.registry.refused import REFUSED
from tests.support.models_table import PAGE, drafts, named
from tests.support.parity import Reference


def test_every_reference_and_every_name_that_is_run_or_refused_is_listed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    references = [*Reference.names(), *Reference.encoders()]
    missing = [name for name in references if f"| {name} |" not in page]
    missing += [name for name in (*ARCHITECTURES, *REFUSED) if f"`{name}`" not in page]
    assert not missing, "run python -m tests.support.models_table"


def test_what_answers_and_who_can_draft_is_what_the_code_says() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    told = {row[0].removeprefix("| "): (row[1], row[3]) for row in rows if len(row) == 8}
    names = [name for name in Reference.names() if name in told]
    assert names
    wrong = [name for name in names if told[name] != (named(Reference(name)), drafts(name))]
    assert not wrong, "run python -m tests.support.models_table"
