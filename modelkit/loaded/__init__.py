"""What a loaded model consists of, from its start to its end.

startup       an opened model -> one that runs
running       engine, tokenizer, prompts and grammars as one, used and closed together
embedding     vectors of texts
long_work     embedding and scoring, which take long and can be cancelled
monitoring    what a loaded model holds and does, for whoever monitors it
finalizer     models that nobody closed
"""
