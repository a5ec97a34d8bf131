"""Cases of random compositions (`composing`): what a seed stands for."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from runtime.cache.layout import misfits, sequence_bytes
from runtime.engine.request import Request
from runtime.models import describe
from runtime.sampling.constraint import ConstraintFault
from runtime.sampling.params import SamplingParams
from tests.support.assistants import record_of
from tests.support.heads import HeadReference
from tests.support.parity import SPECIAL, Reference

HEADS = ("deepseek_v3", "glm4_moe", "glm4_moe_lite", "mimo", "qwen3_5", "qwen3_5_moe")
ASSISTANTS = ("plain", "clustered")


@dataclass(frozen=True)
class Form:
    """A grammar: one id in four may follow, or where it `runs` one alone now and then. After `length` tokens
    the answer is whole; with an `end`, this has to be drawn then.
    """

    vocab: int
    length: int
    runs: bool
    end: int | None
    first: tuple[int, ...] = ()
    """What was said before."""

    def matcher(self) -> "Place":
        return Place(self, list(self.first))

    def only(self, taken: Sequence[int]) -> int | None:
        if len(taken) >= self.length:
            return self.end
        forced = self.runs and len(taken) % 5 > 1
        return (7 * sum(taken) + 4 * len(taken)) % (self.vocab - 3) + 2 if forced else None

    def allowed(self, taken: Sequence[int]) -> np.ndarray:
        ids, only = np.arange(self.vocab), self.only(taken)
        return (ids + sum(taken)) % 4 == 1 if only is None else ids == only


@dataclass
class Place:
    """Where an answer stands in it."""

    form: Form
    taken: list[int] = field(default_factory=list[int])

    @property
    def ended(self) -> bool:
        return len(self.taken) >= self.form.length + (self.form.end is not None)

    def mask(self) -> bytes:
        assert not self.ended
        bits = np.zeros(-(-self.form.vocab // 32) * 32, bool)
        bits[: self.form.vocab] = self.form.allowed(self.taken)
        return np.packbits(bits, bitorder="little").tobytes()

    def advance(self, token: int) -> None:
        if not self.form.allowed(self.taken)[token]:
            raise ConstraintFault(f"{token} is not allowed")
        self.taken.append(token)

    def back(self, count: int) -> None:
        del self.taken[len(self.taken) - count :]

    def forced(self, limit: int) -> list[int]:
        ahead: list[int] = []
        while len(ahead) < limit and not Place(self.form, self.taken + ahead).ended:
            if (only := self.form.only(self.taken + ahead)) is None:
                break
            ahead.append(only)
        return ahead


@dataclass(frozen=True)
class Breakers:
    """Every id that this divides."""

    by: int
    reach: int = 0

    def behind(self, ids: Sequence[int]) -> int:
        return next((place for place, one in enumerate(reversed(ids)) if self.breaks(one)), len(ids))

    def breaks(self, token: int) -> bool:
        return token % self.by == 0


@dataclass(frozen=True)
class Job:
    """A request, and when: in which run of the engine, at which of its turns."""

    run: int
    turn: int
    request: Request
    leaves: int | None
    """The turn at which it is cancelled."""
    resumes: bool
    """What is missing then is asked for."""


@dataclass(frozen=True)
class Case:
    """What a seed stands for."""

    family: str
    form: str
    """floats, packed, blocks, or half."""
    options: dict[str, Any]
    on_disk: bool
    drafters: tuple[str, ...]
    depths: tuple[int, ...]
    beside: tuple[int, ...]
    """Tokens of a prompt that are read beside rows that write."""
    bite: int
    """Tokens that drafters read at once."""
    jobs: tuple[Job, ...]
    deeds: tuple[tuple[int, int, str, int], ...]
    """Run, turn, what happens, an amount."""
    unsound: tuple[str, ...]
    """What is not a number: "word" (the embedding of an id), "adapter"."""

    @classmethod
    def of(cls, seed: int) -> "Case":
        return _Dice(seed).case()


@cache
def families() -> list[str]:
    return [
        *Reference.names(),
        *("special longrope_phi3", "special longrope_llama") * 2,
        *(f"head {name}" for name in HEADS * 4),
        *(f"assisted {name}" for name in ASSISTANTS * 6),
    ]


def record(family: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its config, and the shapes of its tensors."""
    kind, _, name = family.rpartition(" ")
    if kind == "assisted":
        config, tensors = record_of("target")
        return config, {key: shape for key, (_, shape) in tensors.items()}
    special = Reference(name, SPECIAL) if kind == "special" else Reference(name)
    found = HeadReference(name).record if kind == "head" else special.record
    return found["config"], found["tensors"]


class _Dice(random.Random):
    def case(self) -> Case:
        family = self.choice(families())
        self.its = describe(record(family)[0])
        self.vocab, self.reads = self.its.vocab_size, self.its.start_id is not None
        self.context = min(self.choice((2, 3, 7, 16, 33, 64, 100, 160)), self.its.context_length)
        self.page = sequence_bytes(self.its.layout, self.context, 4, slack=48)
        self.unsound = tuple(one for one in ("word", "adapter") if self.random() < 0.12)
        self.adapted = "adapter" in self.unsound or self.random() < 0.3
        self.shifting = self.random() < 0.4
        few = [self.randrange(2, self.vocab) for _ in range(self.choice((1, 4, 12)))]
        self.text = [self.choice(few) if self.random() < 0.7 else self._id() for _ in range(200)]
        self.runs = self.choice((1, 1, 2, 3))
        options = self._options()
        jobs: list[Job] = []
        for _ in range(self.choice((2, 4, 6, 9))):
            jobs.append(self._job(jobs))
        if self.random() < 0.3:  # several answers to one prompt
            of = jobs[0].request
            jobs += [
                replace(jobs[0], request=replace(of, sampling=replace(of.sampling, seed=n))) for n in range(2)
            ]
        kept = options["prefix_bytes"] is not None
        return Case(
            family,
            "floats"
            if family.startswith("assisted")
            else self.choice(("floats", "packed", "blocks", "half")),
            options,
            kept and self.random() < 0.4,
            self._drafters(family),
            () if self.random() < 0.2 else tuple(self.randrange(9) for _ in range(7)),
            () if self.random() < 0.3 else tuple(self.randrange(1, 20) for _ in range(5)),
            self.choice((4, 20, 256)),
            tuple(jobs),
            tuple(self._deeds(options["cache_bytes"] is not None)),
            self.unsound,
        )

    def _id(self) -> int:
        return self.randrange(2, self.vocab)

    def _options(self) -> dict[str, Any]:
        page, kept_format = self.page, self.choice((None, None, "q8", "q4", "f16", "bf16"))
        return {
            "context_length": self.context,
            "budget_tokens": self.choice((1, 2, 5, 16, 64, 512)),
            "max_rows": self.choice((1, 2, 3, 5, 8)),
            "prefix_bytes": self.choice((None, 1, page // 3, 2 * page, 6 * page, 1 << 30)),
            "kv_format": None if misfits(self.its.layout, kept_format) else kept_format,
            "mark_spacing": self.choice((1, 4, 128)),
            "threads": self.choice((None, 1, 2)),
            "cache_bytes": self.choice((None, None, None, int(1.1 * page), int(2.3 * page))),
        }

    def _job(self, earlier: Sequence[Job]) -> Job:
        most = max(self.context - 1, 1)
        ids = self.text[: min(self.choice((1, 2, most, self.randrange(1, most + 1))), most)]
        if earlier and not self.reads and self.random() < 0.4:
            past = self.choice(earlier).request.ids
            ids = [*past[: self.randrange(1, len(past) + 1)], *self.text[: self.randrange(4)]][:most]
        start = self.its.start_id
        prompt, source = (ids, ()) if start is None else ([start], tuple(ids))
        left = self.context - len(prompt)
        count = min(self.choice((0, 1, 2, left, self.randrange(left + 1))), left, 60)
        keep = None
        if self.shifting and self.random() < 0.7:
            keep, count = self.randrange(len(prompt) + 1), self.choice((1, 30, 90))
        stops = frozenset(self.sample(range(self.vocab), self.choice((0, 1, 3))))
        form = self._form(stops) if self.random() < 0.3 else None
        request = Request(
            tuple(prompt),
            count,
            self._sampling(len(prompt), stops, free=form is None),
            stops,
            top_logprobs=self.choice((None, None, 0, 1, 20)),
            draft_tokens=self.choice((None, None, None, 0, 1, 3)),
            marks=tuple(sorted(self.randrange(self.context + 2) for _ in range(self.choice((0, 1, 4))))),
            constraint=form,
            keep=keep,
            source=source,
            adapters=self.choice(self._adapters()) if self.adapted else (),
        )
        turn = self.choice((0, self.randrange(40)))
        leaves = turn + self.randrange(25) if self.random() < 0.25 else None
        resumes = leaves is not None and keep is None and self.random() < 0.6
        return Job(self.randrange(self.runs), turn, request, leaves, resumes)

    def _form(self, stops: Iterable[int]) -> Form:
        end, length = self.choice((None, *stops)), self.choice((0, 1, 4, 15, 40))
        return Form(self.vocab, length or end is None, runs=self.random() < 0.5, end=end)

    def _adapters(self) -> list[tuple[tuple[str, float], ...]]:
        found = [(), (("one", 1.0),), (("two", 0.5), ("one", -0.4)), (("one", 0.0),), (("two", 1.0),)]
        return [*found, (("bad", 1.0),)] if "adapter" in self.unsound else found

    def _sampling(self, begins: int, stops: frozenset[int], *, free: bool) -> SamplingParams:
        own: dict[str, Any] = {}
        if self.random() < 0.25:
            own["ends"], own["ends_from"] = tuple(stops), begins + self.choice((1, 5, 40))
        if self.random() < 0.5:
            own = {
                "repeat_penalty": self.choice((1.0, 1.1, 0.7, 100.0)),
                "presence_penalty": self.choice((0.0, 0.5, -0.3, 100.0)),
                "frequency_penalty": self.choice((0.0, 0.2, -0.1, 100.0, -100.0)),
                "repeat_last_n": self.choice((0, 1, 5, 64, -1, 1000)),
            }
        if self.random() < 0.25:
            own |= {
                "dry_multiplier": self.choice((0.8, 5.0, 100.0)),
                "dry_base": self.choice((1.0, 1.75, 100.0)),
                "dry_allowed_length": self.choice((0, 1, 2, 4)),
                "dry_penalty_last_n": self.choice((-1, -1, 5, 64)),
                "dry_breakers": self.choice((None, Breakers(self.randrange(2, 9)))),
            }
        if self.random() < 0.25:
            own["logit_bias"] = {self._id(): self.choice((-100.0, -3.0, 2.0, 100.0)) for _ in range(4)}
        if free and self.random() < 0.2:
            own["suppressed"] = tuple(self.sample(range(self.vocab), 3))
        if self.random() < 0.25:
            return SamplingParams(temperature=0, **own)
        if self.random() < 0.3:
            own |= {
                "top_n_sigma": self.choice((0.0, 0.5, 2.0)),
                "dynatemp_range": self.choice((0.0, 0.5, 100.0)),
                "dynatemp_exponent": self.choice((0.0, 1.0, 3.0)),
                "xtc_probability": self.choice((0.0, 0.5, 1.0)),
                "xtc_threshold": self.choice((0.0, 0.02, 0.1)),
            }
        return SamplingParams(
            temperature=self.choice((0.3, 0.8, 1.0, 1.5, 100.0, 1e-4)),
            top_k=self.choice((0, 0, 1, 2, 25, 10**6)),
            top_p=self.choice((1.0, 1.0, 0.9, 0.5, 1e-6)),
            min_p=self.choice((0.0, 0.0, 0.05, 1.0)),
            typical_p=self.choice((1.0, 1.0, 0.8, 1e-4)),
            seed=self.choice((0, 7, self.randrange(2**64))),
            draft_acceptance="rejection" if self.random() < 0.08 else "coupled",
            **own,
        )

    def _drafters(self, family: str) -> tuple[str, ...]:
        names = ["adversary", "knowing", "lookup", "grammar"]
        if not self.reads:
            names += [family, "qwen2", self.choice(Reference.names()), "block"]
        chosen = self.sample(names, self.choice((0, 1, 1, 2, 3)))
        own = ["own"] if family.startswith(("head", "assisted")) else []
        return tuple(dict.fromkeys([*own, *chosen]))

    def _deeds(self, limited: bool) -> Iterator[tuple[int, int, str, int]]:
        page = self.page
        for _ in range(self.choice((0, 0, 1, 3))):
            what = self.choice(["clear", "keep", "restart"] + ["layers"] * limited)
            amounts = (
                (int(1.1 * page), 3 * page) if what == "layers" else (0, 1, page // 2, 2 * page, 1 << 30)
            )
            yield self.randrange(self.runs), self.randrange(40), what, self.choice(amounts)
