"""OpenAI's dialect: chat completions, completions, responses, embeddings, models.

Readers make keyword arguments of `Model.chat` and `Model.generate` out of a request's JSON; writers make
bytes out of events. Both are pure. Routes tie them to the pool of loaded models, and know nothing of either.

What a client sends either acts, or is let pass since it carries nothing (null, [], names of users, hints for
somebody else's cache), or is refused with the field's name.
"""

from modelkit.server.dialect import Dialect
from modelkit.server.http.nowhere import UNPREFIXED
from modelkit.server.openai.errors import word
from modelkit.server.openai.routes import ROUTES

DIALECT = Dialect("openai", ROUTES, ("/v1", *UNPREFIXED), word)
