"""OpenAI's dialect: chat completions, completions, responses, embeddings, models.

    routes, stored_routes                               the paths
    chat_request, completion_request, response_request  JSON -> arguments of `Model.chat` and `generate`
    chat_writer, completion_writer, response_writer     events -> JSON, or the events of a stream
    answer_head, wire                                   what all answers begin and end with
What requests share:
    model_choice                                              which model is meant
    messages, tools, client_tools, forms, thinking, sampling  parts of a request
    errors, usage                                             errors, and token counts
Responses:
    input_items, listed_items, response_items    items in, listed again, and out
    response_store, background                   those that are kept, and those that run in the background
    compaction, updates                          a conversation made short; changed settings within one
And:
    completion_rows    prompts of plain completions
    embeddings, models their routes

Readers and writers are pure. Routes tie them to the pool of loaded models, and know nothing of either.

What a client sends either acts, or is let pass since it carries nothing (null, [], names of users, hints for
somebody else's cache), or is refused with the field's name.
"""

from modelkit.server.dialect import Dialect
from modelkit.server.http.not_found import UNPREFIXED
from modelkit.server.openai.errors import word
from modelkit.server.openai.routes import ROUTES

DIALECT = Dialect("openai", ROUTES, ("/v1", *UNPREFIXED), word)
