from pathlib import Path
from typing import Any

from modelkit.tokenizer import Tokenizer, load_tokenizer, other_ids, same_tokens
from tests.modelkit.tokenizer.small import added, byte_level, folder_files, write


def load(folder: Path, **parts: Any) -> Tokenizer:
    return load_tokenizer(write(folder, tokenizer=byte_level(**parts)))


def test_a_draft_has_the_tokens_of_its_target(shared_data: Path):
    target, draft = (
        load_tokenizer(folder_files(shared_data / name)) for name in ("stories260k", "stories260k-draft")
    )
    assert same_tokens(target, draft) is None
    assert target.fingerprint == draft.fingerprint


def test_vocabularies_of_different_size_differ(tmp_path: Path):
    one = load(tmp_path)
    other = load(tmp_path, added_tokens=[added("<s>", 0), added("</s>", 1), added("<x>", 30)])
    assert same_tokens(one, other) == "one vocabulary ends at id 29, the other at id 30"
    assert other_ids(one, other) == other_ids(other, one) == (30,)
    assert one.fingerprint != other.fingerprint


def test_the_first_piece_that_differs_is_named(tmp_path: Path):
    swapped = byte_level()["model"]
    swapped["vocab"] |= {"c": 5, "d": 4}
    assert (
        same_tokens(load(tmp_path), load(tmp_path, model=swapped))
        == "id 4 is 'c' in one and 'd' in the other"
    )
    assert other_ids(load(tmp_path), load(tmp_path, model=swapped)) == (4, 5)


def test_the_same_ids_with_other_merges_are_the_same_tokens(tmp_path: Path):
    one, other = load(tmp_path), load(tmp_path, model={**byte_level()["model"], "merges": []})
    assert same_tokens(one, other) is None
    assert one.fingerprint != other.fingerprint


def test_spelling_does_not_change_the_fingerprint(tmp_path: Path):
    model = byte_level()["model"]
    vocab = dict(reversed(model["vocab"].items()))
    assert (
        load(tmp_path).fingerprint
        == load(tmp_path, model={**model, "vocab": vocab, "merges": ["a b"]}).fingerprint
    )
