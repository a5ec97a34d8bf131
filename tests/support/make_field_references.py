"""Ask transformers (or whose class it is, see `configured`) which fields of a config change its answer:
tests/data/fields.

    python -m tests.support.make_field_references [ENTRY ...]

Run by hand, where torch is installed. For entries of tests/data/references every field is changed to other
values (`field_changes`), the model is built again over the same weights, and a few of its logits are stored
where they differ, in units of
their own spread. Changes that transformers refuses, that change sizes, or that give no finite logits are
left out: nobody can say what is right there. So are fields that mlx-lm's class does not take, and what it
takes for one that a file leaves out.
"""

import copy
import json
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers

from tests.support import field_changes
from tests.support.checkpoints import random_state
from tests.support.configured import configured, source_of
from tests.support.make_references import (
    ENCODERS,
    _is_tied,
    _made,
    _own_tensors,
    _reading,
    source_ids,
)
from tests.support.make_references import FOLDER as REFERENCES
from tests.support.mlx_models import MlxConfig

FOLDER = REFERENCES.parent / "fields"
PLACES = (31, 47)
COLUMNS = 6
SAME = 2e-6  # of the spread: below it, two runs of one computation
# Second entries of a model_type that have fields which the first one lacks.
BESIDES = (
    "deepseek_v2_lite",
    "ernie4_5_moe_unshared",
    "gemma4_moe",
    "glm4_moe_plain",
    "kimi_linear_ranked",
    "llama_llama3_rope",
    "llama_yarn_rope",
    "mistral_window",
    "olmo_hybrid_rope",
    "phi3_window",
    "qwen2_window",
    "qwen3_moe_window",
    "smollm3_window",
)
MOST_TENSORS = 24


class Reads:
    """Names that a config is asked for, whether it has them or not."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __enter__(self) -> "Reads":
        names, plain = self.names, object.__getattribute__
        known = set(dir(transformers.PreTrainedConfig))

        def noted(config: Any, name: str) -> Any:
            if not name.startswith("_") and name not in known:
                names.add(name)
            mapped = plain(config, "attribute_map")
            return plain(config, mapped.get(name, name) if name != "attribute_map" else name)

        self._plain = transformers.PreTrainedConfig.__getattribute__
        transformers.PreTrainedConfig.__getattribute__ = noted
        return self

    def __exit__(self, *_: object) -> None:
        transformers.PreTrainedConfig.__getattribute__ = self._plain


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or _chosen():
        _write(name)


def _chosen() -> list[str]:
    """The first entry of every model_type, of what writes and of what does not, and BESIDES."""
    first: dict[tuple[str, str], str] = {}
    for path in sorted([*REFERENCES.glob("*.json"), *ENCODERS.glob("*.json")]):
        config = json.loads(path.read_text(encoding="utf-8"))["config"]
        first.setdefault((path.parent.name, config["model_type"]), path.stem)
    return sorted({*first.values(), *BESIDES})


def _write(name: str) -> None:
    folder = ENCODERS if (ENCODERS / f"{name}.json").is_file() else REFERENCES
    record = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    with np.load(folder / f"{name}.npz") as answers:
        ids, columns, std = answers["ids"], answers["columns"][::8][:COLUMNS], float(answers["std"])
    state: dict[str, Any] = {}
    with Reads() as reads:
        base = _ask(record, record["config"], ids, state)
    if base is None:
        print(f"{name}: transformers does not take its own config back")
        return
    made = _config(record["config"])
    theirs = isinstance(made, MlxConfig)
    asked = made.asked if theirs else reads.names
    aliases = dict(made.get_text_config().attribute_map)
    still: dict[str, list[Any]] = {}
    moving: list[dict[str, Any]] = []
    rows: list[np.ndarray] = []
    for path, value in field_changes.changes(record["config"], asked, aliases):
        if theirs and (path[0] not in asked or _is_unsaid(value)):
            continue
        config = field_changes.spelled(record["config"], path, value, aliases)
        found = _ask(record, config, ids, state)
        if found is None:
            continue
        logits, tensors = found
        if not tensors and np.abs(logits - base[0]).max() <= SAME * std:
            still.setdefault(".".join(path), []).append(value)
            continue
        case: dict[str, Any] = {"field": ".".join(path), "value": value}
        moving.append(case | ({"tensors": tensors} if tensors else {}))
        rows.append(logits[list(PLACES)][:, columns] / logits.std())
    head = source_of(_made(made)) if theirs else source_of(None)
    _store(name, {**head, "aliases": aliases}, still, moving)
    logits = np.array(rows, np.float32).reshape(-1, len(PLACES), len(columns))
    np.savez_compressed(FOLDER / f"{name}.npz", columns=columns, logits=logits)
    print(f"{name}: {len(moving)} changes act, {sum(map(len, still.values()))} do not", flush=True)


def _store(
    name: str, head: dict[str, Any], still: dict[str, list[Any]], moving: list[dict[str, Any]]
) -> None:
    quiet = ",\n".join(f" {json.dumps(field)}: {json.dumps(values)}" for field, values in still.items())
    acting = ",\n".join(f" {json.dumps(case)}" for case in moving)
    text = f'{json.dumps(head)[:-1]},\n"still": {{\n{quiet}\n}},\n"moving": [\n{acting}\n]}}\n'
    (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


def _is_unsaid(value: Any) -> bool:
    """Does it leave something out for which mlx-lm takes a number of its own, or say in a rope's block what
    it looks for elsewhere?
    """
    if not isinstance(value, Mapping):
        return value is None or value == field_changes.ABSENT
    if "rope_theta" in value or "factor" not in value:
        return True
    return "yarn" in value.values() and "original_max_position_embeddings" not in value


def _config(raw: Mapping[str, Any]) -> Any:
    fields = copy.deepcopy(dict(raw))
    return configured(fields.pop("model_type"), fields)


def _ask(
    record: Mapping[str, Any], raw: Mapping[str, Any], ids: np.ndarray, state: dict[str, Any]
) -> tuple[np.ndarray, dict[str, Any]] | None:
    """float32 logits [T, V], and by which tensors the model differs from the recorded one. None: refused."""
    try:
        config = _config(raw)
        if _grown(config, record["config"]):
            return None
        model = _made(config)
        tensors = _difference(model, record["tensors"])
        if tensors is None:
            return None
        _fill(model, state)
        _reading(model, source_ids(config))
        with torch.no_grad():
            logits = model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].float().numpy()
    except Exception:  # noqa: BLE001 -- whatever it is, transformers has no answer
        return None
    return (logits, tensors) if np.isfinite(logits).all() else None


def _grown(config: Any, raw: Mapping[str, Any]) -> bool:
    """Would this take much more than the recorded model? (A field that is left out takes a default of 7B.)"""
    had = raw.get("text_config") if isinstance(raw.get("text_config"), Mapping) else raw
    has = config.get_text_config().to_dict()
    sizes = [(has.get(name), value) for name, value in had.items() if type(value) is int and value > 3]
    return any(type(now) is int and now > 8 * was for now, was in sizes) and _is_large(has)


def _is_large(has: Mapping[str, Any]) -> bool:
    sized = ("size", "dim", "rank", "experts", "heads", "layers")
    numbers = [value for name, value in has.items() if type(value) is int and any(s in name for s in sized)]
    return max(numbers, default=0) > 1024


def _difference(model: Any, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """{"added": {name: shape}, "removed": [name]}, {} for none, None for sizes that differ."""
    shapes = {key: list(value.shape) for key, value in _own_tensors(model).items()}
    if _is_tied(model):
        shapes.pop("lm_head.weight", None)
    if any(shapes[name] != list(shape) for name, shape in wanted.items() if name in shapes):
        return None
    added = {name: shape for name, shape in shapes.items() if name not in wanted}
    removed = [name for name in wanted if name not in shapes]
    if len(added) + len(removed) > MOST_TENSORS:
        return None
    return {"added": added, "removed": removed} if added or removed else {}


def _fill(model: Any, state: dict[str, Any]) -> None:
    """Weights from their names, made once per entry."""
    own = _own_tensors(model)
    for name, tensor in own.items():
        if name not in state:
            state[name] = torch.from_numpy(random_state({name: tuple(tensor.shape)})[name])
    model.load_state_dict({name: state[name] for name in own}, strict=False)
    model.tie_weights()


if __name__ == "__main__":
    main(sys.argv[1:])
