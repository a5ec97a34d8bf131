"""A tokenizer.json for models that bring their vocabulary in another file: made of it, or refused.

    tiktoken        bytes and their ranks (`qwen.tiktoken`, `hy.tiktoken`, `tiktoken.model`)
    tekken          Mistral's (`tekken.json`); `tekken_chat` how it writes a conversation
    sentencepiece   a model of that library (`tokenizer.model`, `spiece.model`); `wire` reads its coding
    words           what transformers' older classes read (`vocab.json` and `merges.txt`, `vocab.txt`)
    piece_ids       SentencePiece models whose ids are in another order than their file's
    document        what every tokenizer.json that is made here has
    tokenizer_file  which file a source has, and its inventory with the tokenizer.json

Plain documents come out, so nothing here imports the tokenizer library; what reads anybody's tokenizer.json
reads these, with the same checks. Ids are those of the library that the authors use, on every text.
"""
