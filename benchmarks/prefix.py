"""Prompt tokens that are computed although they were computed before, on scripted conversations.

    python benchmarks/prefix.py [--peer PYTHON]

Every script is run by the engine on small random models of each kind of layer memory, then replayed, with
the same prompts and answers, through the prompt cache of mlx-lm's server as that server uses it, if this
Python or the one given can import mlx-lm. "new" are the tokens that no earlier request had at the same
place: nobody can compute fewer. Counts depend on the scripts alone, not on the machine.
"""

import argparse
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from runtime.cache.trie import common  # noqa: E402
from runtime.engine.engine import Engine, Options  # noqa: E402
from runtime.engine.request import Request  # noqa: E402
from runtime.sampling.params import SamplingParams  # noqa: E402
from tests.support.parity import Reference  # noqa: E402

WINDOW = 128
KINDS = {
    "full attention": ("llama", ["full"] * 4),
    "sliding window": ("mistral_window", ["rotating"] * 4),
    "sliding and full": ("gemma3_text", ["rotating"] * 3 + ["full"]),
    "recurrent": ("mamba2", ["arrays"] * 3),
    "recurrent and full": ("qwen3_5", ["arrays"] * 3 + ["full"]),
}
SAMPLING = SamplingParams(temperature=1.5, seed=1, logit_bias=dict.fromkeys(range(10), -1e6))
END, ASK, THINK = (3,), (4, 5, 6), (7,)
Ids = tuple[int, ...]


def words(seed: str, count: int) -> Ids:
    rng = random.Random(seed)
    return tuple(rng.randrange(10, 160) for _ in range(count))


@dataclass(frozen=True)
class Chat:
    """What was said, in ids. marks: ends of messages. system: end of the first."""

    said: Ids = ()
    marks: Ids = ()

    def say(self, *ids: int) -> "Chat":
        said = (*self.said, *ids, *END)
        return Chat(said, (*self.marks, len(said)))

    def answered(self, ids: Ids) -> "Chat":
        return Chat((*self.said, *ASK), self.marks).say(*ids)


@dataclass
class Script:
    """Requests in order; `ask` returns the answer. computed: prompt tokens, by request."""

    engine: Engine
    record: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def ask(self, chat: Chat, count: int = 60, *, thinking: bool = False) -> Ids:
        prompt = (*chat.said, *ASK, *(THINK if thinking else ()))
        request = Request(prompt, count, SAMPLING, marks=chat.marks)
        stream = self.engine.submit(request)
        answer = tuple(token for delta in stream for token in delta.ids)
        assert stream.finish is not None
        usage = stream.finish.usage
        # mlx-lm's server cuts prompts behind the system part and, for thinking models, before the last tag.
        ends = [chat.marks[0], *([len(prompt) - len(THINK)] if thinking else []), len(prompt)]
        known = max((common(prompt, (*r["prompt"], *r["answer"][:-1])) for r in self.record), default=0)
        self.record.append(
            {
                "prompt": prompt,
                "answer": answer,
                "ends": ends,
                "new": len(prompt) - min(known, len(prompt) - 1),
                "computed": usage.prompt_tokens - usage.cached_tokens,
            }
        )
        return answer


SYSTEM = Chat().say(*words("system", 300))


def second_turn(script: Script) -> None:
    chat = SYSTEM.say(*words("one", 40))
    script.ask(chat.answered(script.ask(chat)).say(*words("two", 40)))


def stripped_thinking(script: Script) -> None:
    chat = SYSTEM.say(*words("one", 40))
    answer = script.ask(chat, 200, thinking=True)
    script.ask(chat.answered(answer[150:]).say(*words("two", 40)), thinking=True)


def edited_message(script: Script) -> None:
    chat = SYSTEM.say(*words("one", 40))
    chat = chat.answered(script.ask(chat))
    script.ask(chat.say(*words("two", 40)))
    script.ask(chat.say(*words("another", 40)))


def wanted_again(script: Script) -> None:
    chat = SYSTEM.say(*words("one", 40))
    script.ask(chat)
    script.ask(chat)


def one_system_prompt(script: Script) -> None:
    for n in range(8):
        script.ask(SYSTEM.say(*words(f"user {n}", 40)), 20)


SCRIPTS: dict[str, tuple[Callable[[Script], None], int]] = {
    "second turn": (second_turn, 1),
    "second turn, thinking stripped": (stripped_thinking, 1),
    "last message edited": (edited_message, 1),
    "answer wanted again": (wanted_again, 1),
    "8 conversations, one system prompt": (one_system_prompt, 7),
}
"""Each with how many of its last requests are counted."""


def config_of(entry: str) -> dict[str, Any]:
    config = dict(Reference(entry).record["config"])
    config["max_position_embeddings"] = 4096
    if config.get("sliding_window"):
        config["sliding_window"] = WINDOW
    return config


def records(entry: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What our engine did, script by script, each with an empty store."""
    options = Options(context_length=4096, prefix_bytes=1 << 30)
    engine = Engine(lambda: Reference(entry).load(folder / entry, config_of(entry)), options)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, (play, _) in SCRIPTS.items():
        engine.clear_prefixes()
        script = Script(engine)
        play(script)
        found[name] = script.record
    engine.close()
    return found


def replayed(python: str, kinds: list[str], record: list[dict[str, Any]]) -> list[int]:
    """Tokens that mlx-lm's server would compute, by request."""
    job = json.dumps({"kinds": kinds, "window": WINDOW, "requests": record})
    peer = Path(__file__).with_name("prefix_peer.py")
    done = subprocess.run([python, str(peer)], input=job, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", metavar="PYTHON", help="a Python that can import mlx-lm")
    peer = parser.parse_args().peer
    if peer is None and importlib.util.find_spec("mlx_lm") is not None:
        peer = sys.executable
    print(f"{'':38}{'prompt':>8}{'new':>8}{'modelkit':>10}{'mlx-lm':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for title, (entry, kinds) in KINDS.items():
            print(title)
            for name, record in records(entry, Path(folder)).items():
                last = SCRIPTS[name][1]
                theirs = sum(replayed(peer, kinds, record)[-last:]) if peer else "-"
                prompt = sum(len(request["prompt"]) for request in record[-last:])
                new, ours = (sum(request[key] for request in record[-last:]) for key in ("new", "computed"))
                print(f"  {name:36}{prompt:>8}{new:>8}{ours:>10}{theirs:>8}")


if __name__ == "__main__":
    main()
