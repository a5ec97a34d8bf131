"""Templates of strangers, run so that they can do nothing but make text, and not too much of it.

`GuardedTemplate` is all that other rooms import; what goes wrong is a modelkit.errors.TemplateError.

- Who writes templates: anyone whose model is downloaded. A template is a stranger's program; the messages,
  tools and variables it is given come from users and may be chosen to make an honest template work hard.
- What it may reach: the plain data it is given (texts, numbers, lists, objects), the clock, and what is
  listed in `reachable`. It may change nothing that it is given.
- What it may not: Python's objects (jinja2's immutable sandbox sees to that), files, other templates, and
  whatever a later jinja2 or Python adds (filters, tests, methods and syntax are lists of what is known).
- What bounds it, for compiling and for each rendering: 2 seconds of the thread's processor time; 128 MiB of
  texts and lists made, counted before they are made; 8,000,000 characters of output; values nested 100 and
  macros 64 deep. A source has at most 1,000,000 bytes, 50,000 tokens, 12,000 nodes, 80 levels.
- How: no threads, signals or processes. `instrument` puts a counter into every loop; every operator, filter,
  test, method and output passes through `environment`, which asks `growth` how much it will make and charges
  it to the `budget`. Between two looks at the clock there is one operation on bounded data.
- Not promised: harmless text (special tokens included, it is what the model reads), a bound on many
  renderings together, protection from faults in CPython that plain data can reach.

Behaves as templates do in transformers: blocks trimmed, `break` and `continue`, `{% generation %}`, `tojson`
without HTML escapes, `raise_exception`, `strftime_now`. Left out, because no chat template needs them and
each is a way to harm or to surprise: filters that make HTML, URLs or random choices, `lipsum`, `block`,
`autoescape`.
"""

from modelkit.chat.guarded.sandbox import GuardedTemplate

__all__ = ["GuardedTemplate"]
