"""Templates come out of files that strangers made: none may reach what is outside of it."""

from __future__ import annotations

import contextlib

import pytest

from pilotfish.daemon.chat.chat_template import ChatTemplate, Conversation
from pilotfish.hooks.errors import RequestError

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    "source",
    [
        # jinja2 before 3.1.6 read these without a word: the filter handed the sandbox's own `format` over
        "{{ ('{0.__class__.__init__.__globals__}' | attr('format'))(raise_exception) }}",
        "{{ ('{a.__globals__}' | attr('format_map'))({'a': raise_exception}) }}",
        "{% set f = '{0.__globals__}' | attr('format') %}{{ f(strftime_now) }}",
        "{{ '{0.__globals__}'.format(raise_exception) }}",
        "{{ (raise_exception | attr('__globals__')).keys() }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
    ],
)
def test_a_template_reaches_neither_globals_nor_the_messages(source):
    conversation = Conversation([dict(message) for message in MESSAGES])
    shown = ""
    with contextlib.suppress(RequestError):  # some ways out are refused, others lead to nothing
        shown = ChatTemplate(source).render(conversation)
    assert shown == ""
    assert conversation.messages == MESSAGES
