"""Tokenizers out of GGUF metadata: pieces, types, merges or scores, and a name, made into tokenizer.json.

    pieces      the vocabulary as the file states it, checked
    special     what the special tokens are, and which of them end a text
    splitting   how a text is cut before merging, by the name in the file; `patterns` has the expressions
    bpe, sentencepiece, words  one kind of vocabulary each, as a tokenizer.json
    companions  the smaller files: tokenizer_config.json, generation_config.json, chat template
    files       all of it; `export`: the other way round, for files that are written

Plain documents come out, so nothing here imports the tokenizer library; what reads anybody's tokenizer.json
reads these, with the same checks. The ids are those of llama.cpp, where it and the model's own tokenizer
agree; where they do not, those of the model's own (`splitting`).
"""
