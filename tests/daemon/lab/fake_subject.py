"""A subject of parity runs whose engine is fake, and takes any text."""

from __future__ import annotations

import zlib
from dataclasses import replace

from pilotfish.daemon.chat.chat_template import ChatTemplate
from pilotfish.daemon.lab.fakes import FakeEngine, fake_pin
from pilotfish.daemon.lab.fakes.fake_engine import FakeTokenizer
from pilotfish.daemon.lab.parity_mixes import SLOTS
from pilotfish.daemon.lab.parity_subject import Subject
from pilotfish.hooks.types import EngineOptions, TargetPin

TEMPLATE = "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"


class Words(FakeTokenizer):
    """Any text as ids."""

    def encode(self, text, *, add_special=True, parse_special=True):
        return [2 + zlib.crc32(word.encode()) % 30 for word in text.split()]


class FakeVerifier:
    name = "fake"


def subject(engine: FakeEngine, pin: TargetPin | None = None, **options) -> Subject:
    """`engine`, as if it had been loaded for `pin` with these options."""
    engine.tokenizer = Words({}, engine.eog)
    given = replace(EngineOptions(slots=SLOTS), **options)
    return Subject("fake", pin or fake_pin(), engine, ChatTemplate(TEMPLATE), FakeVerifier(), given)
