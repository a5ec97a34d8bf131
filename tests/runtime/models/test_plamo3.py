"""PLaMo 3's rotation where a file lengthens its context, which mlx-lm's class does not know."""

from runtime.models import describe
from runtime.nn.positions.rope_spec import read_rope
from tests.support.parity import Reference


def test_layers_without_a_window_are_lengthened_by_yarn() -> None:
    config = {
        **Reference("plamo3").record["config"],
        "rope_scaling_factor": 4.0,
        "initial_context_length": 64,
    }
    wide = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64}
    wide |= {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
    full = read_rope(wide, head_dim=32, max_positions=256)
    near = read_rope({"rope_type": "default", "rope_theta": 1e4}, head_dim=32, max_positions=256)
    assert describe(config).config.ropes == (near, near, full, near)
