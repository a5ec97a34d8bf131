"""A running server as its clients here see it: a loaded model there looks like one that was loaded here.

    model_like  what a loaded model offers, wherever it is
    connection  finding the server, asking it, and its errors as ours; `fields` reads its JSON
    answers     the lines of an answer as events and text
    model       a model in a server, with the methods of `modelkit.Model` that talking to it takes

Nothing here loads a model. The server's side is `modelkit.server.own`; a server is believed no more than any
other stranger: what it sends is bounded, and a value of the wrong type is an error that says so.
"""
