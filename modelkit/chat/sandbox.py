"""Templates of strangers, run so that they can do nothing but make text, and not too much of it.

jinja2's immutable sandbox keeps a template from reaching Python; it does not keep it from looping for ever
or filling memory. The guard adds that, on jinja2's own hooks and without threads or signals: the parsed
template is bounded and gets a counter in every loop (`instrument`), and every operator, filter, test,
method and output goes through a Budget (`guard`). Between two looks at the clock there is one operation on
bounded data.

Behaves as templates do in transformers: blocks trimmed, `break` and `continue`, `{% generation %}`,
`tojson` without HTML escapes, `raise_exception`, `strftime_now`. Left out, because no chat template needs
them and each is a way to harm or to surprise: filters that make HTML, URLs or random choices, `lipsum`,
`include`, `import`, `extends`, `block`, `autoescape`.
"""

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2

from modelkit.chat.budget import SECONDS, Overrun
from modelkit.chat.functions import Refused
from modelkit.chat.guard import GuardedEnvironment
from modelkit.errors import TemplateError

SOURCE_BYTES = 1_000_000
MESSAGE_CHARS = 500


class GuardedTemplate:
    """One compiled template. Rendering is safe from any thread, one at a time.

    `name` stands in errors before the line number; compiling, and each rendering, may take `seconds`.
    Raises TemplateError for a source that is too large, does not parse, or uses something that is left out.
    """

    def __init__(self, source: str, *, name: str = "chat template", seconds: float = SECONDS) -> None:
        self._name = name
        self._lock = threading.Lock()
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
        with self._lock:
            self._environment.begin(now)
            try:
                context = self._template.new_context(dict(variables))
                return self._environment.concat(self._template.root_render_func(context))
            except Exception as error:
                raise self._failure(error) from error
            finally:
                self._environment.begin(None)

    def _failure(self, error: Exception) -> TemplateError:
        line = _line_of(error)
        error.__traceback__ = None  # its frames hold everything the template made
        where = f"{self._name}, line {line}" if line else self._name
        if isinstance(error, Refused):
            return TemplateError(f"{where}: the template does not accept this conversation: {_shown(error)}")
        if isinstance(error, Overrun):
            return TemplateError(f"{where}: the template was stopped: {_shown(error)}")
        if isinstance(error, RecursionError | MemoryError):
            return TemplateError(
                f"{where}: the template was stopped: it nests too deeply or needs too much memory"
            )
        what = error.message if isinstance(error, jinja2.TemplateSyntaxError) else error
        return TemplateError(f"{where}: {type(error).__name__}: {_shown(what)}")


def _shown(what: object) -> str:
    text = " ".join(str(what)[: 4 * MESSAGE_CHARS].split())
    return text if len(text) <= MESSAGE_CHARS else text[:MESSAGE_CHARS] + "..."


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
