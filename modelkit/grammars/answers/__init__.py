"""A whole answer: thinking, text, calls of tools and a form, as a request allows and an output style writes
them.

shape                  all that a request asks of an answer, checked
answer                 the grammar of an answer between marks
messages               that of an answer of messages behind headers (gpt-oss)
definition             the grammar of a shape as the library takes it
thinking_budget        thinking that ends after so many tokens
reopened_thinking      thinking that does not begin again behind its budget
"""
