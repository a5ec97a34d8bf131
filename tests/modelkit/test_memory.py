"""What a model will take, told before it is loaded, and what is proposed where that is too much."""

from dataclasses import replace
from pathlib import Path

import pytest

import modelkit
from modelkit.errors import LoadError, RequestError
from modelkit.memory import BESIDE_BYTES, Forecast, Memory, demand_of, forecast, shortage
from modelkit.source.inventory import read_inventory
from modelkit.source.tree import read_directory
from runtime.cache.layout import Full, Recurrent, Rotating, State
from runtime.device import Device, device
from runtime.loading.step_demand import StepDemand
from runtime.models import Described
from tests.support.tiny import write_model

LAYOUT = (Full(2, 64),) * 4
PER_TOKEN = 4 * 2 * 2 * 64 * 4
GROWING = PER_TOKEN * 5 // 4
"""One of four layers is there twice while it grows."""


def enough(nbytes: int) -> int:
    """What has to be free for so many bytes: a part of it is for others."""
    return nbytes * 32 // 31 + 32


def foreseen(**changes: object) -> Forecast:
    return replace(Forecast(LAYOUT, 4, weight_bytes=1000), **changes)  # pyright: ignore[reportArgumentType]


def said(forecast: Forecast, *, free: int, prefixes: int = 0, tokens: int = 4096) -> str | None:
    return shortage("story", forecast, tokens, forecast.memory(tokens, prefixes, free))


def test_what_fits_needs_no_words() -> None:
    assert said(foreseen(), free=enough(1000 + 4096 * GROWING)) is None
    assert said(foreseen(), free=1000 + 4096 * GROWING) is not None
    assert said(foreseen(), free=0) is None  # nobody knows what is free


def test_a_shorter_context_and_a_smaller_format_are_proposed() -> None:
    text = said(foreseen(), free=enough(1000 + 1500 * GROWING))
    assert text is not None
    assert "num_ctx 1280 or kv_format q8 would fit" in text


def test_q4_is_proposed_where_q8_is_not_enough() -> None:
    text = said(foreseen(), free=enough(1000 + 1000 * GROWING))
    assert text is not None
    assert "kv_format q4" in text
    assert "q8" not in text


def test_no_format_is_proposed_that_cannot_hold_the_heads() -> None:
    text = said(foreseen(layout=(Full(2, 80),)), free=enough(1000 + 2 * 3000 * 2 * 2 * 80 * 4))
    assert text is not None
    assert "num_ctx 2816 would fit" in text


def test_nothing_is_proposed_that_would_not_help() -> None:
    fold = Recurrent({"state": State((1000,), "float32")})
    assert said(foreseen(layout=(fold,)), free=3000) is not None
    assert "would fit" not in str(said(foreseen(layout=(fold,)), free=3000))


def test_drafts_and_earlier_prompts_count() -> None:
    pair = foreseen(draft_layout=LAYOUT[:1], draft_element_bytes=4, draft_bytes=500, draft_context=1000)
    memory = pair.memory(4096, 300, 10**9)
    assert memory.draft_cache_bytes == 1000 * PER_TOKEN // 4
    assert memory.wanted_bytes == 1000 + 500 + 300 + 4096 * GROWING + 1000 * PER_TOKEN // 4


def test_less_for_earlier_prompts_is_proposed_where_that_is_enough() -> None:
    free = enough(1000 + 4096 * GROWING + 5000)
    assert "cache memory of 5,0" in str(said(foreseen(), free=free, prefixes=9000))


def test_what_windows_hold_beside_while_a_prompt_is_read_counts() -> None:
    """Half of what these layers take of 1,024 tokens. A shorter context needs no more than one that grows."""
    sliding, rows = foreseen(layout=(Rotating(2, 64, 512),) * 4), 512 + 16 + 64
    memory = sliding.memory(4096, 0, enough(1000 + 900 * PER_TOKEN))
    assert memory.step_bytes == memory.likely_step_bytes == 512 * PER_TOKEN
    assert memory.needed_bytes == memory.wanted_bytes == 1000 + (rows + 512) * PER_TOKEN
    assert "num_ctx 512 or kv_format q8 would fit" in str(shortage("story", sliding, 4096, memory))
    assert sliding.memory(4096, 0, 0, width=64).step_bytes == rows * PER_TOKEN // 4
    assert foreseen().memory(4096, 0, 0).step_bytes == 4096 * PER_TOKEN // 4


def test_what_a_step_works_with_is_needed_and_left_free_by_conversations() -> None:
    working = foreseen(work=StepDemand(token_bytes=1000), draft_work=StepDemand(scan_bytes=9000))
    memory = working.memory(4096, 0, 0)
    assert memory.likely_step_bytes == memory.spare_bytes == memory.work_bytes == 64 * 9000
    assert working.memory(4096, 0, 0, width=1024).likely_step_bytes == 1024 * 1000
    assert working.memory(100, 0, 0, width=1024).work_bytes == 64 * 9000


def test_each_of_several_ranks_spares_its_part_of_what_is_for_others() -> None:
    memory = foreseen(beside_bytes=5, work=StepDemand(token_bytes=1)).memory(4096, 0, 3200)
    assert (memory.spare_bytes, memory.spare_of(4)) == (5 + 512 + 100, 5 + 512 + 25)


def test_folds_are_there_twice_while_a_step_is_computed() -> None:
    folds = foreseen(layout=(Recurrent({"state": State((1000,), "float32")}),) * 3)
    memory = folds.memory(4096, 0, 0)
    assert memory.wanted_bytes == 1000 + 2 * 3 * 4000


def test_what_steps_of_a_model_work_with_is_foreseen_from_its_headers(pair: Path) -> None:
    target = demand_of(read_inventory(read_directory(pair / "target"), "target"))
    assert forecast(target, None, drafts=False, kv_format=None).work_bytes(512) == target.step.of(512) > 0


def test_what_the_program_takes_beside_is_needed_and_left_free_by_conversations() -> None:
    memory = foreseen(beside_bytes=BESIDE_BYTES).memory(4096, 0, 3_200_000)
    assert memory.needed_bytes == 1000 + 1024 * PER_TOKEN + BESIDE_BYTES
    assert memory.wanted_bytes == 1000 + 4096 * GROWING + BESIDE_BYTES
    assert memory.spare_bytes == BESIDE_BYTES + 100_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the package `pair`: a model and a draft."""
    root = tmp_path_factory.mktemp("pair")
    write_model(root / "target")
    write_model(root / "draft", seed=1, num_hidden_layers=1, max_position_embeddings=100)
    (root / "Modelfile").write_text(f"FROM {root / 'target'}\nDRAFT {root / 'draft'}\n")
    modelkit.create(root / "Modelfile", name="pair", home=root)
    return root


def test_what_was_foreseen_is_what_is_held(pair: Path) -> None:
    told: list[Memory] = []
    with modelkit.load("pair", home=pair, on_memory=lambda memory, _: told.append(memory)) as model:
        assert told == [model.memory]
    assert told[0].draft_bytes > 0
    assert told[0].cache_bytes == 2 * told[0].draft_cache_bytes * 256 // 100


def test_quantized_weights_are_foreseen_as_they_will_be_held(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    (tmp_path / "Modelfile").write_text(f"FROM {folder}\n")
    modelkit.create(tmp_path / "Modelfile", name="small", quantize="q4", home=tmp_path)
    told: list[Memory] = []
    with modelkit.load("small", home=tmp_path, on_memory=lambda memory, _: told.append(memory)) as model:
        assert told[0].weight_bytes == model.memory.weight_bytes


def test_it_is_told_before_anything_is_loaded(pair: Path) -> None:
    class Stop(Exception):
        pass

    def stop(memory: Memory, shortage: str | None) -> None:
        raise Stop

    weights = pair / "target" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    try:
        with pytest.raises(Stop):
            modelkit.load(pair / "target", on_memory=stop)
    finally:
        weights.write_bytes(whole)


def test_a_context_that_does_not_fit_is_said_and_loaded(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(device(), available_bytes=450_000)
    monkeypatch.setattr("runtime.device.device", lambda: small)
    told: list[str | None] = []
    with modelkit.load(pair / "target", on_memory=lambda _, short: told.append(short)) as model:
        assert told[0] in model.notes
        assert model.generate("Once", raw=True, num_predict=2).ids
    assert "tokens of context" in str(told[0])


def test_weights_that_do_not_fit_are_refused(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small: Device = replace(device(), available_bytes=1000)
    monkeypatch.setattr("runtime.device.device", lambda: small)
    with pytest.raises(LoadError, match="does not fit"):
        modelkit.load(pair / "target")


def test_what_is_free_is_asked_again_when_weights_are_read(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server frees memory in between, and other programs take some."""
    free = [device()]
    monkeypatch.setattr("runtime.device.device", lambda: free[-1])

    def lose(memory: Memory, shortage: str | None) -> None:
        free.append(replace(free[0], available_bytes=1000))

    with pytest.raises(LoadError, match="does not fit"):
        modelkit.load("pair", home=pair, on_memory=lose)
    with modelkit.load("pair", home=pair, on_memory=lambda *_: free.append(free[0])) as model:
        assert model.memory.weight_bytes


def test_a_network_is_built_once(pair: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Described] = []
    build = Described.network
    monkeypatch.setattr(Described, "network", lambda self: (built.append(self), build(self))[1])
    modelkit.load("pair", home=pair).close()
    assert len(built) == 2  # target and draft


def test_without_drafting_a_draft_takes_nothing(pair: Path) -> None:
    target = demand_of(read_inventory(read_directory(pair / "target"), "target"))
    draft = demand_of(read_inventory(read_directory(pair / "draft"), "draft"))
    alone = forecast(target, draft, drafts=False, kv_format=None)
    both = forecast(target, draft, drafts=True, kv_format=None)
    assert (alone.draft_bytes, alone.draft_layout) == (0, ())
    assert both.draft_bytes > 0


def test_what_is_likely_is_said_before_what_is_possible() -> None:
    """Most of what may be taken is a limit that one conversation never comes near."""

    def shown(nbytes: int) -> str:
        return f"{nbytes} B"

    long = foreseen().memory(8192, prefix_bytes=3_000_000_000, available_bytes=10**10)
    assert long.needed_bytes == 1000 + 1024 * PER_TOKEN
    assert long.wanted_bytes == 1000 + 8192 * GROWING + 3_000_000_000
    assert long.sentence(shown) == (
        f"needs {1000 + 1024 * PER_TOKEN} B with 1,024 tokens of context, {1000 + 8192 * GROWING} B with "
        "all 8,192; may cache up to 3000000000 B of prompts (10000000000 B free)"
    )
    short = foreseen().memory(100, prefix_bytes=0, available_bytes=0)
    assert short.sentence(shown) == (
        f"needs {1000 + 100 * PER_TOKEN} B with 100 tokens of context (free memory unknown)"
    )


def test_a_loaded_model_needs_what_was_foretold(pair: Path) -> None:
    told: list[Memory] = []
    with modelkit.load(pair / "target", on_memory=lambda memory, _: told.append(memory)) as model:
        assert model.memory.needed_bytes == told[0].needed_bytes
        assert 0 < model.memory.likely_tokens <= model.memory.context_tokens == model.context_length


def test_a_conversation_that_outgrows_the_machine_is_refused(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was free when the model was loaded. One that is shorter is answered."""
    free = [1 << 40]
    monkeypatch.setattr("runtime.device.available_bytes", lambda: free[-1])
    with modelkit.load(pair / "target", cache_memory=0) as model:
        free.append(model.memory.spare_bytes + model.memory.cache_bytes // 2)
        with pytest.raises(RequestError, match="not enough memory for so long a conversation"):
            model.generate([3] * 250, num_predict=2)
        assert model.generate([3] * 60, num_predict=2).ids
