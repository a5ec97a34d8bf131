"""How far a prompt has been read, for those who wait."""

from pathlib import Path

import modelkit
from tests.support.tiny import write_model


def test_progress_ends_with_the_whole_prompt(tmp_path: Path) -> None:
    ids = [token % 250 for token in range(200)]
    with modelkit.load(write_model(tmp_path / "model"), num_batch=16, cache_memory="1MB") as model:
        engine = model._running.engine  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        seen: list[modelkit.PromptProgress] = []
        stream = model.generate(ids, num_predict=3, stream=True)
        while (now := stream.progress) is None or now.read < now.total:
            seen += [now] if now is not None and now not in seen[-1:] else []
            engine.call(lambda _model: None)  # between two steps
        first = stream.whole()
        again = model.generate(ids, num_predict=3, stream=True)
        second = again.whole()
    assert [one.read for one in seen] == sorted({one.read for one in seen})
    assert all(one.total == 200 and one.cached == 0 for one in seen)
    assert any(0 < one.read < 200 for one in seen)
    assert now.read == now.total == first.usage.prompt_tokens
    assert again.progress == modelkit.PromptProgress(200, second.usage.cached_tokens, 200)
    assert second.usage.cached_tokens > 0
