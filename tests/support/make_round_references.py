"""What every kind of draft proposes, round by round, by transformers' own assisted generation (run by hand,
where torch is installed).

    python -m tests.support.make_round_references

tests/data/special/rounds.json holds for each pair the prompt, the answer, and per round how many tokens there
were and what was drafted behind them. Weights come from names, as everywhere. Where transformers gives drafts
the target's logits processors, all but a few tokens are suppressed, so that random networks agree now and
then. `dflash` reads its target's last layer too.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from transformers import modeling_layers
from transformers.generation import candidate_generator as generators

from tests.support.checkpoints import random_state
from tests.support.make_draft_references import DRAFT as BLOCK_DRAFT
from tests.support.make_head_references import HEADS, filled_head
from tests.support.make_references import _fill, _reference_model, entries
from tests.support.make_special_references import FOLDER, _assistant_pair, _drafted

PROMPT, ANSWER, LEFT = 13, 40, range(40, 43)


def main() -> None:
    record: dict[str, Any] = {"transformers": transformers.__version__, "left": list(LEFT)}
    target = _reference_model(*entries()["qwen3_5"])
    record["qwen3_5"] = _by_head(target, filled_head(target, HEADS["qwen3_5"])[0])
    for name in ("deepseek_v3", "glm4_moe"):
        target = _reference_model(*entries()[name])
        head, _ = filled_head(target, HEADS[name])
        modeling_layers.MtpModel.from_pretrained = classmethod(lambda _cls, *_given, own=head, **_more: own)
        record[name] = _rounds(generators.MTPCandidateGenerator, target, use_mtp=True, suppressed=True)
    target, draft = _reference_model(*entries()["llama"]), _reference_model(*entries()["llama"])
    _fill(draft, torch.bfloat16, seed=0)
    record["llama"] = _by_model(target, draft)
    record["dflash"] = _block()
    for name, ordered in (("plain", False), ("clustered", True)):
        record[name] = _by_assistant(*_assistant_pair(ordered=ordered))
    text = json.dumps(record)
    (FOLDER / "rounds.json").write_text(text.replace("}, ", "},\n").replace('], "', '],\n "') + "\n")


def _block() -> dict[str, Any]:
    target = _reference_model(*entries()["muse_glimmer"])
    config = transformers.AutoConfig.for_model(
        "muse_glimmer_assistant", **{**BLOCK_DRAFT, "target_layer_ids": [0, 2, 3]}
    )
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").float().eval()
    shapes = {key: tuple(x.shape) for key, x in model.state_dict().items()}
    model.load_state_dict({key: torch.from_numpy(x) for key, x in random_state(shapes).items()})
    given = {"assistant_model": model, "speculation_type": "dflash", "suppressed": True}
    rounds = _rounds(generators.DFlashTokenCandidateGenerator, target, **given)
    return {**rounds, "config": config.to_dict(), "tensors": shapes}


@torch.no_grad()
def _rounds(kind: Any, target: Any, *, suppressed: bool = False, **how: Any) -> dict[str, Any]:
    """One greedy answer, and what was drafted on the way."""
    vocab = target.config.get_text_config().vocab_size
    prompt = torch.from_numpy(np.random.default_rng(7).integers(3, vocab, PROMPT))[None]
    seen: list[tuple[int, list[int]]] = []
    ask = kind.get_candidates

    def noting(self: Any, input_ids: torch.Tensor, *given: Any, **more: Any) -> Any:
        found = ask(self, input_ids, *given, **more)
        length = input_ids.shape[1]
        if found[0].shape[1] > length:
            seen.append((length, found[0][0, length:].tolist()))
        return found

    kind.get_candidates = noting
    try:
        forbidden = [token for token in range(vocab) if token not in LEFT] if suppressed else None
        out = target.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=ANSWER,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            suppress_tokens=forbidden,
            **how,
        )[0].tolist()
    finally:
        kind.get_candidates = ask
    agreed = sum(_agreed(out, *one) for one in seen)
    print(f"{kind.__name__}: {len(seen)} rounds, {agreed} of {sum(len(d) for _, d in seen)} drafts stand")
    return {"prompt": out[:PROMPT], "answer": out[PROMPT:], "rounds": seen}


@torch.no_grad()
def _by_head(target: Any, head: Any) -> dict[str, Any]:
    """The same for a target that transformers' assisted generation refuses, since its layers fold: the head
    at every place of a greedy answer.
    """
    ids = np.random.default_rng(7).integers(3, target.config.vocab_size, PROMPT).tolist()
    ids, only = _answered(target, ids, ANSWER), _only(target)
    tokens = torch.tensor([ids])
    hidden = target.get_decoder()(tokens).last_hidden_state[:, :-1]
    out = head.forward_layer(0, hidden, torch.arange(1, len(ids))[None], None, input_ids=tokens[:, 1:])
    guesses = (target.lm_head(out)[0] + only).argmax(-1).tolist()  # of the token behind each pair's second
    return _told(ids, lambda known: [guesses[known - 2]])


@torch.no_grad()
def _by_model(target: Any, draft: Any) -> dict[str, Any]:
    """The same by a model of its own, whose drafts begin after the answer's first token."""
    ids = np.random.default_rng(7).integers(3, target.config.vocab_size, PROMPT).tolist()
    ids = _answered(target, ids, ANSWER)
    return _told(ids, lambda known: _answered(draft, ids[:known], 3)[known:])


def _answered(model: Any, ids: list[int], count: int) -> list[int]:
    """The ids and the likeliest of those that are left behind them, without a cache."""
    for _ in range(count):
        ids = [*ids, int((model(torch.tensor([ids])).logits[0, -1] + _only(model)).argmax())]
    return ids


def _only(model: Any) -> torch.Tensor:
    allowed = torch.full((model.config.vocab_size,), -torch.inf)
    allowed[list(LEFT)] = 0.0
    return allowed


@torch.no_grad()
def _by_assistant(target: Any, draft: Any) -> dict[str, Any]:
    """The same with keys of exactly the tokens that stand: assisted generation leaves the assistant one key
    of a draft that was rejected.
    """
    ids = np.random.default_rng(7).integers(3, 160, PROMPT).tolist()
    for _ in range(ANSWER):
        # Asked for hidden states, it does not spare layers that share keys, for which 5.23 fails here.
        out = target(torch.tensor([ids]), use_cache=True, output_hidden_states=True)
        ids.append(int(out.logits[0, -1].argmax()))
    tokens = torch.tensor([ids])
    return _told(ids, lambda known: _drafted(target, draft, tokens, known - 1).argmax(-1).tolist())


def _told(ids: list[int], draft: Callable[[int], list[int]]) -> dict[str, Any]:
    """The rounds of an answer. draft: what is proposed when so many ids are known."""
    seen: list[tuple[int, list[int]]] = []
    length = PROMPT + 1
    while length < len(ids):
        seen.append((length, draft(length)))
        length += 1 + _agreed(ids, *seen[-1])
    return {"prompt": ids[:PROMPT], "answer": ids[PROMPT:], "rounds": seen}


def _agreed(text: list[int], length: int, drafts: list[int]) -> int:
    same = [a == b for a, b in zip(drafts, text[length:], strict=False)]
    return same.index(False) if False in same else len(same)


if __name__ == "__main__":
    main()
