"""docs/modelfile.md says what the program does."""

from modelkit.modelfile import DIRECTIVES
from tests.support.parameter_docs import PAGE, with_tables


def test_the_parameter_tables_are_the_programs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "run python -m tests.support.parameter_docs"


def test_every_directive_is_described() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for keyword in DIRECTIVES:
        assert f"### {keyword}" in page
