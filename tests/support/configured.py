"""The config that makers of references build a model from: transformers' own, or fields of a file whose class
is mlx-lm's, its authors' or one of tests/support (run by hand, where torch, transformers and mlx-lm are
installed).
"""

from collections.abc import Mapping
from typing import Any

import transformers

from tests.support import authors_models
from tests.support.authors_models import AuthorsConfig
from tests.support.mlx_models import MlxConfig
from tests.support.own_models import OwnConfig, own_class


def configured(model_type: str, fields: Mapping[str, Any], small: Mapping[str, Any] = {}) -> Any:
    """transformers' config of this kind, with the fields of `small` besides; where it has none, a file's."""
    if own_class({**fields, "model_type": model_type}) is not None:
        return OwnConfig({**fields, "model_type": model_type})
    others = model_type == "step3p5" or "group_norm_size" in fields  # in a wrapper alone; Ling 2.5
    if model_type in transformers.CONFIG_MAPPING and not others:
        return transformers.AutoConfig.for_model(model_type, **{**small, **fields})
    kind = AuthorsConfig if model_type in authors_models.KINDS else MlxConfig
    return kind({**fields, "model_type": model_type})


def source_of(model: Any) -> dict[str, str]:
    """Whose class a model is, and which release of it."""
    return dict(getattr(model, "source", {"transformers": transformers.__version__}))
