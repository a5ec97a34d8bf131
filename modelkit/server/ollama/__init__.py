"""Ollama's HTTP interface, as its clients know it: `/api/...`, lines of JSON, errors as one text.

    dialect                the paths
    wire, options          values as Go writes them; options of a request
    reading, messages      a request's JSON to what a model is asked
    lines                  events to lines
    descriptions           packages and loaded models as `tags`, `show` and `ps` have them
    recipes, staging       a package to be made, of files that were sent before
    tasks                  pull, push and create as lines of progress
    answers, embedding,
    package_routes         the routes

Every key, its place, and whether it is left out when empty, is as in Ollama's own `api/types.go` (MIT).
"""
