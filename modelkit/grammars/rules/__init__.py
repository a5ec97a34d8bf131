"""The text of a grammar, in the Lark dialect of llguidance.

rules                  rules and terminals, free text, and marks as tokens
raw_text               a text without quotes, up to a mark, held to its schema
llguidance_schema      a JSON schema as the library takes it
"""
