"""A chain of drafts: each the next token of its row, drawn as the row itself would draw it.

A drafter's logits go through the rows' own sampler at the position where the token would stand, hence with
the noise that the target will use there: where both think alike, they draw the same token. A row's grammar
masks its drafts too, each as if those before it stood; to know that, the ones before are waited for.
"""

from typing import cast

import mlx.core as mx

from runtime.speculate.drafter import Rows


class DraftChain:
    """The drafts of one round. Empty at first; `draw` adds one for every row."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._drawn: list[mx.array] = []
        self._odds: list[list[mx.array | None]] = []

    @property
    def tokens(self) -> mx.array:
        """int32 [n, depth]: all drafts so far."""
        return mx.concatenate(self._drawn, axis=1)

    @property
    def odds(self) -> tuple[mx.array | None, ...]:
        """Per row the log-probabilities [1, depth, V] that its drafts were drawn from; None for rows that do
        not ask. () when none does.
        """
        if not self._rows.sampler.wants_odds:
            return ()
        return tuple(_joined(links) for links in zip(*self._odds, strict=True))

    def draw(self, logits: mx.array) -> mx.array:
        """int32 [n, T]: the T tokens after each row's ids and the drafts so far, mostly one.

        logits: [n, T, V], the drafter's opinion of them, over the target's ids.
        """
        at_once = not self._rows.sampler.wants_history and self._rows.ahead is None
        parts = [logits] if at_once else mx.split(logits, logits.shape[1], axis=1)
        drawn = mx.concatenate([self._link(part) for part in parts], axis=1)
        mx.async_eval(drawn)  # the device draws it while the host builds what comes behind
        return drawn

    def _link(self, logits: mx.array) -> mx.array:
        rows, before, count = self._rows, self._drawn, logits.shape[1]
        inputs = history = None
        if rows.sampler.wants_history:
            newest = mx.array([[ids[-1]] for ids in rows.ids], dtype=mx.int32)
            inputs, history = mx.concatenate([newest, *before], axis=1), [ids[:-1] for ids in rows.ids]
            # The penalties of the last column count the drafts before it; the other columns only come along.
            logits = mx.broadcast_to(logits, (logits.shape[0], inputs.shape[1], logits.shape[2]))
        depth = sum(tokens.shape[1] for tokens in before)
        positions = [len(ids) + depth + count - logits.shape[1] for ids in rows.ids]
        tokens, odds = rows.sampler.draft(
            logits, positions, history=history, inputs=inputs, mask=self._mask()
        )
        if tokens.shape[1] > count:
            tokens = tokens[:, -count:]
            odds = [None if one is None else one[:, -count:] for one in odds]
        self._drawn.append(tokens)
        self._odds.append(odds)
        return self._drawn[-1]

    def _mask(self) -> mx.array | None:
        ahead = self._rows.ahead
        if ahead is None:
            return None
        drafts = (
            cast("list[list[int]]", self.tokens.tolist()) if self._drawn else [[] for _ in self._rows.ids]
        )
        return ahead.last(drafts)


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


def _joined(links: tuple[mx.array | None, ...]) -> mx.array | None:
    known = [link for link in links if link is not None]
    return mx.concatenate(known, axis=1) if known else None
