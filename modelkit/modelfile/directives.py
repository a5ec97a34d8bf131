"""The table of directives: what a line of a Modelfile may begin with. Parser, recipe and docs all read it.

A new directive is one row here, one field in `recipe.Recipe`, and two test files.
"""

from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class DirectiveRow:
    """One directive."""

    keyword: str
    takes: str
    """The argument in words, as in "FROM needs a path or a model name"."""
    example: str
    help: str
    named: str | None = None
    """What stands between keyword and value ("name", "role"); None for nearly all."""
    repeats: bool = False
    """Do several lines add up? Where not, a second line is an error: none of the two wins in silence."""


DIRECTIVES: dict[str, DirectiveRow] = {
    row.keyword: row
    for row in (
        DirectiveRow(
            "FROM",
            takes="a path or a model name",
            example="FROM ./my-model",
            help="The target model: a folder, a .safetensors file, or the name of a stored package.",
        ),
        DirectiveRow(
            "DRAFT",
            takes="a path or a model name",
            example="DRAFT ./assistant",
            help="A small model that proposes tokens for the target to check. Changes speed, never the text.",
        ),
        DirectiveRow(
            "QUANTIZE",
            takes="a format",
            example="QUANTIZE q4",
            help="How the weights are stored, as with --quantize; `QUANTIZE draft q4` is for the draft.",
            repeats=True,
        ),
        DirectiveRow(
            "ADAPTER",
            takes="a path",
            example="ADAPTER ./lora",
            help="A LoRA or DoRA adapter for the target. Several answer together.",
            repeats=True,
        ),
        DirectiveRow(
            "PARAMETER",
            takes="a name and a value",
            example="PARAMETER temperature 0.7",
            help="A default for running the model. `stop` may repeat; every other name appears once.",
            named="name",
            repeats=True,
        ),
        DirectiveRow(
            "TEMPLATE",
            takes="a template",
            example="TEMPLATE {% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}",
            help="The chat template, in jinja or in Go's language. Without it the model's own is used.",
        ),
        DirectiveRow(
            "SYSTEM",
            takes="a text",
            example="SYSTEM You answer in one sentence.",
            help="The system message of every conversation that does not bring its own.",
        ),
        DirectiveRow(
            "LICENSE",
            takes="a text",
            example="LICENSE MIT",
            help="A licence of the package, by name or in full.",
            repeats=True,
        ),
        DirectiveRow(
            "MESSAGE",
            takes="a role and a text",
            example="MESSAGE user What is a cache?",
            help="One turn of a conversation that every chat starts from. Roles: system, user, assistant.",
            named="role",
            repeats=True,
        ),
        DirectiveRow(
            "RENDERER",
            takes="the name of a prompt renderer",
            example="RENDERER qwen3-coder",
            help="A built-in template, as TEMPLATE takes it. Other names are recorded and do nothing.",
        ),
        DirectiveRow(
            "PARSER",
            takes="the name of an output parser",
            example="PARSER qwen3-coder",
            help="How the model marks thinking and calls of tools; else the chat template tells.",
        ),
        DirectiveRow(
            "REQUIRES",
            takes="a version",
            example="REQUIRES 0.1.0",
            help="The oldest modelkit that can run the package.",
        ),
    )
}

ROLES = ("system", "user", "assistant")
