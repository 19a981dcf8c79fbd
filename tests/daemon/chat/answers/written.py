"""Answers as models of each family write them, and what is in them."""

from __future__ import annotations

from pilotfish.daemon.chat.answers.answer_events import AnswerMessage, ToolCall
from pilotfish.daemon.chat.answers.answer_format import AnswerReading, whole
from pilotfish.daemon.chat.answers.called_tools import Tool

WEATHER = Tool(
    "weather",
    "The weather in a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
TIME = Tool("time", "What time it is.")
TOOLS = (WEATHER, TIME)

_SEP, _CALL, _END = "<｜tool▁sep｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
CALLS = [ToolCall("weather", "", '{"city": "Paris", "days": 3}'), ToolCall("time", "", "{}")]
# What is said before a call, and two calls, as each family writes them.
WRITTEN = {
    "hermes": (
        'So.<tool_call>\n{"name": "weather", "arguments": {"city": "Paris", "days": 3}}\n</tool_call>\n'
        '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
    ),
    "llama": ('So.{"name": "weather", "parameters": {"city": "Paris", "days": 3}}; {"name": "time", "parameters": {}}'),
    "mistral-list": (
        'So.[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Paris", "days": 3}, "id": "abcdef123"}, '
        '{"name": "time", "arguments": {}, "id": "abcdef456"}]'
    ),
    "mistral-named": 'So.[TOOL_CALLS]weather[ARGS]{"city": "Paris", "days": 3}[TOOL_CALLS]time[ARGS]{}',
    "mistral-ids": (
        'So.[TOOL_CALLS]weather[CALL_ID]abcdef123[ARGS]{"city": "Paris", "days": 3}'
        "[TOOL_CALLS]time[CALL_ID]abcdef456[ARGS]{}"
    ),
    "deepseek": (
        f'So.<｜tool▁calls▁begin｜>{_CALL}weather{_SEP}{{"city": "Paris", "days": 3}}{_END}'
        f"{_CALL}time{_SEP}{{}}{_END}<｜tool▁calls▁end｜>"
    ),
    "deepseek-fenced": (
        f'So.<｜tool▁calls▁begin｜>{_CALL}function{_SEP}weather\n```json\n{{"city": "Paris", "days": 3}}\n```{_END}\n'
        f"{_CALL}function{_SEP}time\n```json\n{{}}\n```{_END}<｜tool▁calls▁end｜>"
    ),
    "granite": 'So.<|tool_call|>[{"name": "weather", "arguments": {"city": "Paris", "days": 3}}, '
    '{"name": "time", "arguments": {}}]',
    "nemotron": 'So.<TOOLCALL>[{"name": "weather", "arguments": {"city": "Paris", "days": 3}}, '
    '{"name": "time", "arguments": {}}]</TOOLCALL>',
    "command-r": 'So.<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "weather", "parameters": '
    '{"city": "Paris", "days": 3}}, {"tool_call_id": "1", "tool_name": "time", "parameters": {}}]<|END_ACTION|>',
    "tagged": (
        "So.<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=time>\n</function>\n</tool_call>"
    ),
    "channels": (
        "<|channel|>commentary<|message|>So.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
        '<|constrain|>json<|message|>{"city": "Paris", "days": 3}<|call|><|start|>assistant to=functions.time'
        "<|channel|>commentary json<|message|>{}<|call|>"
    ),
}


def read(text: str | list[str], calls: str = "", **more) -> AnswerMessage:
    """The message in a text, or in its pieces."""
    message = AnswerMessage()
    reading = AnswerReading(calls, tools=TOOLS, **more)
    message.add(whole(reading, [text] if isinstance(text, str) else text))
    return message
