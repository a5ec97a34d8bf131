"""Convert tiny checkpoints with llama.cpp's own converter and keep what the files say, never weights.

    python -m tests.support.make_gguf_references FOLDER [ENTRY ...]

FOLDER is a checkout of llama.cpp. Run by hand, where torch, transformers and what its converter imports are
installed. For each entry of `gguf_entries` tests/data/gguf gets the checkpoint's config, the names and shapes
of its tensors (their numbers come from `checkpoints.random_tensor`), the metadata without the vocabulary, and
of each tensor of the file its shape and a checksum, or some of its numbers where the last bit is not
determined.
"""

import gzip
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import make_references
from tests.support.authors_models import KINDS
from tests.support.checkpoints import random_state
from tests.support.gguf_digest import digest
from tests.support.gguf_entries import (
    ABSENT,
    CONVERTER_FIELDS,
    DRAFTS,
    FUSED,
    GGUF_ENTRIES,
    RENAMED,
    WITH_HEAD,
)
from tests.support.tiny import write_tokenizer

DATA = Path(__file__).resolve().parents[1] / "data" / "gguf"
_WRAPPERS = {
    "MiniMaxForCausalLM": "MiniMaxText01ForCausalLM",
    "Mistral4ForCausalLM": "Mistral3ForConditionalGeneration",
    "MptForCausalLM": "MPTForCausalLM",
}
"""What the converter knows a text model by: what it is published in, or as."""
_AS_WRITTEN = (
    *("bailing_hybrid", "falcon_h1", "glm5_next", "gpt_neox", "mimo_v2_flash", "minimax_m3_vl"),
    *("qwen4_exp_text", "step3p5"),
)
"""Whose fields the converter looks for under the names that files have, not transformers' own."""
_ELSEWHERE = ("general.", "tokenizer.", "GGUF.")


def main(llama_cpp: Path, names: list[str]) -> None:
    sys.path[1:1] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    DATA.mkdir(parents=True, exist_ok=True)
    _without_vocabularies()
    for name in names or [*GGUF_ENTRIES, *FUSED, *WITH_HEAD, *DRAFTS]:
        with tempfile.TemporaryDirectory() as folder:
            base, options = FUSED.get(name, (WITH_HEAD.get(name, name), {}))
            if name in DRAFTS:
                shapes = _draft(name, Path(folder))
            else:
                shapes = _checkpoint(base, Path(folder), head=name in WITH_HEAD)
            _convert(Path(folder), options, head=name in WITH_HEAD)
            config = json.loads((Path(folder) / "config.json").read_text())
            record = {"config": config, "shapes": shapes, **_described(Path(folder) / "model.gguf")}
        text = json.dumps(record, separators=(",", ":"))
        (DATA / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        print(f"{name}: {len(record['tensors'])} tensors", flush=True)


def _checkpoint(name: str, folder: Path, *, head: bool) -> dict[str, list[int]]:
    """Write the checkpoint as transformers saves it; its tensors' shapes."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    base, changes = GGUF_ENTRIES[name]
    model_type, fields = make_references.entries()[base]
    if model_type in (*KINDS, "kimi_k3"):
        return _stored(base, changes, folder)
    fields = {key: value for key, value in {**fields, **changes}.items() if value is not ABSENT}
    make_references._reference_model(model_type, fields).save_pretrained(folder)
    shapes: dict[str, list[int]] = {}
    counted: dict[str, Any] = {}  # by the class, of its config
    for file in folder.glob("*.safetensors*"):
        if file.suffix == ".safetensors":
            with safe_open(file, "np") as opened:
                for key in opened.keys():  # noqa: SIM118
                    if opened.get_slice(key).get_dtype() == "I64":
                        counted[key] = opened.get_tensor(key)
                    else:
                        shapes[key] = list(opened.get_slice(key).get_shape())
        file.unlink()
    shapes = {
        _renamed(name, key): shape
        for key, shape in shapes.items()
        if not key.endswith(make_references._COMPUTED)
    }  # what published files leave to be computed
    if head:
        shapes |= _head(name, shapes)
    state = random_state({key: tuple(shape) for key, shape in shapes.items()})
    save_file(state | counted, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= CONVERTER_FIELDS.get(name, lambda _: {})(config)
    if head:
        config |= {"num_nextn_predict_layers": 1, "mtp_num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    _write_tokenizer(folder, config.get("vocab_size") or config["text_config"]["vocab_size"])
    return shapes


def _stored(base: str, changes: Mapping[str, Any], folder: Path) -> dict[str, list[int]]:
    """A checkpoint of tests/data/references whose class is not asked again; with more layers all are like its
    first.
    """
    record = json.loads((DATA.parent / "references" / f"{base}.json").read_text())
    config = {**record["config"], **changes}
    shapes: dict[str, list[int]] = {} if changes else record["tensors"]
    for key, shape in record["tensors"].items() if changes else ():
        before, inside, after = key.partition("layers.0.")
        for layer in range(config["num_hidden_layers"]) if inside else ():
            shapes[f"{before}layers.{layer}.{after}"] = shape
        shapes |= {} if ".layers." in key else {key: shape}
    shapes = {
        key: shape
        for key, shape in shapes.items()
        if not key.endswith("inv_freq") and "early_exit_gate" not in key
    }
    _write_stored(config, shapes, folder)
    return shapes


def _write_stored(config: Mapping[str, Any], shapes: Mapping[str, list[int]], folder: Path) -> None:
    from safetensors.numpy import save_file

    (folder / "config.json").write_text(json.dumps(config))
    state = random_state({key: tuple(shape) for key, shape in shapes.items()})
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    _write_tokenizer(folder, config.get("vocab_size") or config["text_config"]["vocab_size"])


def _draft(name: str, folder: Path) -> dict[str, list[int]]:
    """A draft of tests/data/special, as `_checkpoint`."""
    part, kind = DRAFTS[name]
    record = json.loads((DATA.parent / "special" / f"{name}.json").read_text())[part]
    _write_stored({**record["config"], "architectures": [kind]}, record["tensors"], folder)
    return record["tensors"]


def _head(name: str, target: Mapping[str, Any]) -> dict[str, list[int]]:
    """The draft head's tensors; experts are one by one where the target's are."""
    record = json.loads((DATA.parent / "heads" / f"{name}.json").read_text())
    behind = f"model.layers.{record['config']['num_hidden_layers']}."
    found: dict[str, list[int]] = {}
    for key, shape in record["tensors"].items():
        if not key.startswith(("mtp.", behind)):
            continue
        stem, stack, matrix = key.rpartition(".experts.")
        if not stack or not any(".experts.0." in one for one in target):
            found[key] = shape
            continue
        count, rows, columns = shape
        parts = ("gate_proj", "up_proj") if matrix == "gate_up_proj" else ("down_proj",)
        for expert in range(count):
            for part in parts:
                found[f"{stem}.experts.{expert}.{part}.weight"] = [rows // len(parts), columns]
    return found


def _renamed(name: str, key: str) -> str:
    for theirs, ours in RENAMED.get(name, ()):
        key = key.replace(theirs, ours)
    return key


def _write_tokenizer(folder: Path, size: int) -> None:
    """As many tokens as the embedding has rows: Gemma 3's converter cuts off the rest."""
    write_tokenizer(folder, min(size, 256) - 10)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    first = len(tokenizer["model"]["vocab"])
    tokenizer["added_tokens"] = [{"id": i, "content": f"<x{i}>", **flags} for i in range(first, size)]
    path.write_text(json.dumps(tokenizer))


def _without_vocabularies() -> None:
    """The converters write few tokens or none; sizes that they pad are padded."""
    import conversion

    conversion.load_all_models()
    conversion.TextModel.get_vocab_base_pre = lambda *_: "gpt-2"
    kinds = [conversion.TextModel]
    for kind in kinds:
        kinds += kind.__subclasses__()
        vocabulary = ("_set_vocab", "_get_suppress_tokens")
        for method in [method for method in vars(kind) if method.startswith(vocabulary)]:
            setattr(kind, method, lambda self, *_: None)
    conversion.get_model_class("ArcticForCausalLM").set_vocab = lambda _self: None
    _with_norms_of_heads(conversion.get_model_class("StableLmForCausalLM"))
    _of_any_size(conversion.get_model_class("PlamoForCausalLM"))
    _that_ends(conversion.get_model_class("BaichuanForCausalLM"))


def _with_norms_of_heads(stablelm: Any) -> None:
    """Its generator returns the norms of StableLM 2 12B that it has stacked, and so loses them; earlier
    versions wrote them.
    """
    convert, stacked = stablelm.modify_tensors, stablelm._stack_qk_norm

    def modify(self: Any, data: Any, name: str, bid: int | None) -> Any:
        done: list[Any] = []
        self._stack_qk_norm = lambda *given: done.extend(stacked(self, *given))
        yield from convert(self, data, name, bid)
        yield from done

    stablelm.modify_tensors = modify


def _that_ends(baichuan: Any) -> None:
    """Its generator calls itself for all but one tensor of a layer, for ever; earlier versions kept them."""
    convert = baichuan.modify_tensors

    def modify(self: Any, data: Any, name: str, bid: int | None) -> Any:
        if "W_pack" in name:
            yield from convert(self, data, name, bid)
        else:
            yield self.map_tensor_name(name), data

    baichuan.modify_tensors = modify


def _of_any_size(plamo: Any) -> None:
    """Sizes of the published 13B stand in it as numbers; its five heads of keys still do."""

    def grid(self: Any) -> tuple[int, int, int, int]:
        hidden, heads = self.hparams["hidden_size"], self.hparams["num_attention_heads"]
        return heads // 5, 5, hidden // heads, hidden

    def rows(self: Any, data: Any) -> Any:
        return data.reshape(grid(self)).permute(1, 0, 2, 3).reshape(data.shape)

    plamo.shuffle_attn_q_weight = rows
    plamo.shuffle_attn_output_weight = lambda self, data: rows(self, data.T).T.contiguous()


def _convert(folder: Path, options: Mapping[str, Any], *, head: bool) -> None:
    import conversion
    import gguf
    import torch

    hparams = conversion.ModelBase.load_hparams(folder, False)
    raw = json.loads((folder / "config.json").read_text())
    name = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
    kind = conversion.get_model_class(_WRAPPERS.get(name, name))
    if kind.supports_mtp_export:
        kind.no_mtp = not head
    if raw["model_type"] in _AS_WRITTEN:
        options = {**options, "hparams": {**hparams, **raw}}
        if raw["model_type"] == "mimo_v2_flash":
            options["hparams"].pop("rope_parameters")
    for attempt in range(2):
        try:
            with torch.inference_mode():
                kind(folder, gguf.LlamaFileType.ALL_F32, folder / "model.gguf", **options).write()
            return
        except (OSError, LookupError, ValueError, TypeError, AttributeError, AssertionError):
            if attempt:
                raise
            kind.set_vocab = lambda self: None


def _described(path: Path) -> dict[str, Any]:
    import gguf

    reader = gguf.GGUFReader(path)
    metadata = {
        key: field.contents() for key, field in reader.fields.items() if not key.startswith(_ELSEWHERE)
    }
    tensors: dict[str, Any] = {}
    for tensor in reader.tensors:
        array = np.array(tensor.data).reshape([int(size) for size in reversed(tensor.shape.tolist())])
        tensors[tensor.name] = [list(array.shape), digest(tensor.name, array)]
    architecture = reader.fields["general.architecture"].contents()
    return {"architecture": architecture, "metadata": metadata, "tensors": tensors}


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
