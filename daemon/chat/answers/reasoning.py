"""What a model thinks before it answers, between tags."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.daemon.chat.answers.answer_events import Reasoning
from pilotfish.daemon.chat.answers.incoming_text import IncomingText, Steps


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """As the model's template writes them, with the whitespace that belongs to them.

    `cut_by` are markers that end it, too, and belong to what comes next.
    """

    start: str
    end: str
    cut_by: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts of which some models have tokens that are not shown otherwise."""
        return (self.start.strip(), self.end.strip())


def read_reasoning(incoming: IncomingText, tags: ReasoningTags) -> Steps[None]:
    """Read what is thought at the beginning of an answer, if anything is."""
    position = yield from incoming.past_space()
    start = yield from incoming.starts_with(tags.start.strip(), position=position)
    incoming.take(position + len(start))
    if start:
        yield from _past(incoming, tags, tags.start.lstrip()[len(start) :])
        yield from _thoughts(incoming, tags)
        yield from _past(incoming, tags, tags.end[len(tags.end.rstrip()) :])


def _thoughts(incoming: IncomingText, tags: ReasoningTags) -> Steps[None]:
    end = tags.end.strip()
    position = yield from incoming.past_space()
    if (yield from incoming.starts_with(end, position=position)):
        incoming.take(position + len(end))  # nothing but whitespace, which nobody wants to see
        return
    if not (yield from incoming.at(position)):
        return
    marker = yield from incoming.pass_until((end, *tags.cut_by), Reasoning)
    if marker != end:
        incoming.rest = marker + incoming.rest


def _past(incoming: IncomingText, tags: ReasoningTags, spaces: str) -> Steps[None]:
    """Read the whitespace that belongs to a tag, as much of it as is there; all of it where calls may cut in."""
    if tags.cut_by:
        incoming.take((yield from incoming.past_space()))
        return
    for space in spaces:
        if (yield from incoming.at(0)) == space:
            incoming.take(1)
