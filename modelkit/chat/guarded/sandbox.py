"""A template compiled and rendered under the guard, and its failures as TemplateErrors with their line."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2

from modelkit.chat.guarded.budget import SECONDS, Overrun
from modelkit.chat.guarded.environment import GuardedEnvironment
from modelkit.chat.guarded.reachable import Refused
from modelkit.errors import TemplateError
from modelkit.python_faults import number_fault
from runtime.quoting import sentence

SOURCE_BYTES = 1_000_000


class GuardedTemplate:
    """One compiled template. Any number of threads may render it at once.

    `name` stands in errors before the line number; compiling, and each rendering, may take `seconds`.
    Raises TemplateError for a source that is too large, does not parse, or uses something that is left out.
    """

    def __init__(self, source: str, *, name: str = "chat template", seconds: float = SECONDS) -> None:
        self._name = name
        self._environment = GuardedEnvironment(seconds)
        if len(source.encode("utf-8", "surrogatepass")) > SOURCE_BYTES:
            raise TemplateError(f"{name} is larger than {SOURCE_BYTES:,} bytes")
        try:
            self._template, self.undeclared = self._environment.build(source)
        except Exception as error:
            raise self._failure(error) from error

    def render(self, variables: Mapping[str, Any], *, now: datetime | None = None) -> str:
        """The text for `variables`, which must be plain data (`plain`). `now` stands in for the clock.

        Raises TemplateError for whatever goes wrong in the template, with its line, and when it overruns its
        Budget.
        """
        with self._environment.rendering(now):
            try:
                context = self._template.new_context(dict(variables))
                return self._environment.concat(self._template.root_render_func(context))
            except Exception as error:
                raise self._failure(error) from error

    def _failure(self, error: Exception) -> TemplateError:
        line = _line_of(error)
        error.__traceback__ = None  # its frames hold everything the template made
        where = f"{self._name}, line {line}" if line else self._name
        if isinstance(error, Refused):
            return TemplateError(
                f"{where}: the template does not accept this conversation: {sentence(str(error))}"
            )
        if isinstance(error, Overrun):
            return TemplateError(f"{where}: the template was stopped: {sentence(str(error))}")
        if isinstance(error, RecursionError | MemoryError):
            return TemplateError(
                f"{where}: the template was stopped: it nests too deeply or needs too much memory"
            )
        if (said := number_fault(error)) is not None:
            return TemplateError(f"{where}: {said}")
        if isinstance(error, jinja2.TemplateSyntaxError):
            return TemplateError(f"{where}: jinja cannot read it: {sentence(error.message or '')}")
        return TemplateError(f"{where}: {type(error).__name__}: {sentence(str(error))}")


def _line_of(error: Exception) -> int | None:
    """The line of the template where `error` came up: jinja2 keeps a map from the Python it makes."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        if isinstance(template, jinja2.Template):
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line
