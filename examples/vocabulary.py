"""Text to token ids: a byte-level BPE of 1024 entries learned from the corpus, and the chat template.

Training text is rendered by the very template that ships with the models, so that what the models saw is what
they will be shown.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
from corpus import Document, documents
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SIZE = 1024  # a multiple of 64, so that the embedding quantizes like every other matrix
PAD, BEGIN, END = "<|pad|>", "<|begin|>", "<|end|>"
SPECIAL = (PAD, BEGIN, END, "<|system|>", "<|user|>", "<|assistant|>")
PAD_ID, BEGIN_ID, END_ID, _, _, ASSISTANT_ID = range(len(SPECIAL))
TEMPLATE = Path(__file__).parent / "island" / "chat_template.jinja"


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of one document, and for each id whether the model has to predict it."""

    ids: list[int]
    wanted: list[bool]


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)  # noqa: S701 - not HTML
    return environment.from_string(TEMPLATE.read_text())


def render(messages: list[tuple[str, str]], generate: bool = False) -> str:
    said = [{"role": role, "content": text} for role, text in messages]
    return _template().render(messages=said, bos_token=BEGIN, add_generation_prompt=generate)


def learn(seed: int, count: int) -> Tokenizer:
    """Train on `count` documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed, count), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, BEGIN_ID)]
    )
    assert tokenizer.get_vocab_size() == SIZE
    return tokenizer


def _texts(seed: int, count: int) -> Iterator[str]:
    for document in documents(seed, count):
        if isinstance(document, str):
            yield document
        else:
            yield from (text for _, text in document)


def encode(tokenizer: Tokenizer, document: Document) -> Example:
    """Plain text is predicted from its first token on; of a conversation, only what the assistant says."""
    if isinstance(document, str):
        ids = [*tokenizer.encode(document).ids, END_ID]
        return Example(ids, [False] + [True] * (len(ids) - 1))
    ids = tokenizer.encode(render(document), add_special_tokens=False).ids
    wanted, speaking = [], False
    for token in ids:
        wanted.append(speaking)
        speaking = token == ASSISTANT_ID or (speaking and token != END_ID)
    return Example(ids, wanted)


def save(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """The files of a Hugging Face tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": BEGIN, "eos_token": END, "pad_token": PAD}
    _write(folder / "special_tokens_map.json", special)
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": context,
            "clean_up_tokenization_spaces": False,
            **special,
        },
    )
    (folder / "chat_template.jinja").write_text(TEMPLATE.read_text())


def load(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def _write(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
