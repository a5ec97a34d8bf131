"""Networks that several families use, and parts of them. A trunk has the layers; a head makes logits.

decoder           the usual decoder, and the parts that families make its layers of
headed            a trunk with an output head
encoder           networks that give hidden states alone, and embeddings that several of them have
reading           decoder layers that read what an encoder made of a prompt (T5, BART)
shared_block      recurrent layers, and blocks that many of them share (Zamba)
rwkv              what the generations of RWKV share
mixture           config and modules of DeepSeek-V3's mixture of experts
per_layer         a second embedding that feeds every layer (Gemma 3n and 4)
position_table    learned positions (GPT-2)
draft_heads       draft heads behind the last layer (DeepSeek, GLM)
pruned            an output head for the first ids alone
taps              hidden states between layers, for drafters that read them
"""
