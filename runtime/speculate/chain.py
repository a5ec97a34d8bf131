"""One link of a chain of drafts: the next token of each row, drawn as the row itself would draw it.

A drafter's logits go through the rows' own sampler at the position where the token would stand, hence with
the noise that the target will use there: where both think alike, they draw the same token.
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.speculate.drafter import Rows


def draw(rows: Rows, logits: mx.array, before: Sequence[mx.array]) -> mx.array:
    """int32 [n, 1]: the token after each row's ids and the drafts `before` it, int32 [n, 1] each.

    logits: [n, 1, V], the drafter's opinion of that token.
    """
    newest = mx.array([[ids[-1]] for ids in rows.ids], dtype=mx.int32)
    inputs = mx.concatenate([newest, *before], axis=1) if before else newest
    if rows.sampler.wants_history and before:
        # The penalties of the last column count the drafts before it; the other columns only come along.
        logits = mx.broadcast_to(logits, (logits.shape[0], inputs.shape[1], logits.shape[2]))
    else:
        inputs = inputs[:, -1:]
    positions = [len(ids) + len(before) + 1 - logits.shape[1] for ids in rows.ids]
    history = [ids[:-1] for ids in rows.ids] if rows.sampler.wants_history else None
    return rows.sampler.sample(logits, positions, history=history, inputs=inputs)[:, -1:]


def within(logits: mx.array, vocab_size: int) -> mx.array:
    """The same logits over the target's ids: those it lacks are cut off, those the drafter lacks never drawn.

    Vocabularies of one tokenizer are padded to different sizes.
    """
    missing = vocab_size - logits.shape[-1]
    if missing == 0:
        return logits
    if missing < 0:
        return logits[..., :vocab_size]
    return mx.concatenate([logits, mx.full((*logits.shape[:-1], missing), -mx.inf, logits.dtype)], axis=-1)
