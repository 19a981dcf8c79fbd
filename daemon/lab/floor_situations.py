"""The situations in which stock Ollama must not be better, each as a function of a server.

Every figure is one where less is better. A round has texts of its own, so that nothing it asks was cached before, and
both servers are asked the same in it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pilotfish.daemon.lab.floor_servers import OllamaReply, OllamaServer

MODEL, PLAIN = "floor", "floor-plain"  # what the measured models are called
TOGETHER = 4  # requests at once
ALLOWED = 1.03  # times stock's figure, in most situations
IN_TURNS = 1.10  # for chats that take turns
_THINGS = ("apple", "pear", "plum", "cherry", "quince", "melon", "lemon", "orange", "grape", "fig", "date", "olive")
_BEGUN = 0.3  # seconds that a long prompt is ahead of the short one


@dataclass(frozen=True, slots=True)
class FloorSizes:
    """How much is asked, in tokens; of prompts about so many, which depends on the tokenizer."""

    prompts: tuple[int, ...] = (200, 1000, 3000)
    chats: tuple[tuple[int, int], ...] = ((2, 1100), (5, 500))  # how many, and of how many tokens each
    answer: int = 96
    long_prompt: int = 2000
    context: int = 4096
    short_context: int = 512


@dataclass(frozen=True, slots=True)
class Figure:
    """What a situation took, in its unit, and every answer in it."""

    value: float
    replies: tuple[OllamaReply, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """One server in one round."""

    server: OllamaServer
    sizes: FloorSizes
    round: int
    words_per_token: float

    async def generate(self, prompt: str, tokens: int, *, model: str = MODEL, context: int = 0) -> OllamaReply:
        """A greedy answer of at most `tokens`."""
        return await self.server.generate(model, prompt, self._options(tokens, context))

    async def chat(self, messages: list[dict[str, str]], tokens: int) -> OllamaReply:
        return await self.server.chat(MODEL, messages, self._options(tokens, 0))

    def text(self, tokens: int, *about: object) -> str:
        """About so many tokens of prose that no other round and no other `about` begins alike."""
        chance = random.Random(repr((self.round, about)))
        wanted, words = max(1, round(tokens * self.words_per_token)), list[str]()
        while len(words) < wanted:
            words += f"The {chance.choice(_THINGS)} number {chance.randrange(1000)} weighs".split()
            words += f"{chance.randrange(10, 900)} grams and costs {chance.randrange(2, 90)} cents.".split()
        return " ".join(words[:wanted])

    def _options(self, tokens: int, context: int) -> dict[str, Any]:
        return {"temperature": 0, "seed": 1, "num_predict": tokens, "num_ctx": context or self.sizes.context}


@dataclass(frozen=True, slots=True)
class Situation:
    """`parallel` is OLLAMA_NUM_PARALLEL, `unit` what the figure counts, `allowed` how many times stock's it may be."""

    name: str
    unit: str
    measure: Callable[[Asked], Awaitable[Figure]]
    parallel: int = 1
    allowed: float = ALLOWED


def situations(sizes: FloorSizes) -> list[Situation]:
    """Every situation, in the order in which a round goes through them: memory at rest is that of a fresh load."""
    return [
        Situation("load", "s", load),
        Situation("memory at rest", "MiB", memory_at_rest),
        *(Situation(f"fresh prompt, {size} tokens", "s", partial(fresh_prompt, size)) for size in sizes.prompts),
        Situation("answer that copies", "ms/token", partial(answer, "Repeat this, word by word, again and again: ")),
        Situation("answer that does not", "ms/token", partial(answer, "Tell a long story about the sea. ")),
        Situation("first token of a warm chat", "s", warm_chat),
        *(
            Situation(f"{n} chats in turns, {size} tokens", "s/turn", partial(turns, n, size), allowed=IN_TURNS)
            for n, size in sizes.chats
        ),
        Situation("answer across the context's end", "ms/token", past_the_end),
        Situation("model that cannot speculate", "s", plain_model),
        Situation(f"{TOGETHER} different requests at once", "ms/token", partial(at_once, False), TOGETHER),
        Situation(f"{TOGETHER} equal requests at once", "ms/token", partial(at_once, True), TOGETHER, allowed=1.0),
        Situation("short request behind a long prompt", "s", short_behind_long, TOGETHER),
        Situation("memory at its peak", "MiB", memory_at_peak, TOGETHER),
    ]


async def load(asked: Asked) -> Figure:
    """Until a model that was not loaded answers, as Ollama counts it."""
    await asked.server.unload(MODEL)
    reply = await asked.generate("Hi", 1)
    return Figure(reply.load, (reply,))


async def memory_at_rest(asked: Asked) -> Figure:
    reply = await asked.generate("Hi", 1)
    return Figure(asked.server.memory() / (1 << 20), (reply,))


async def memory_at_peak(asked: Asked) -> Figure:
    """Of everything that this server was asked so far."""
    asked.server.memory()
    return Figure(asked.server.peak / (1 << 20), ())


async def fresh_prompt(size: int, asked: Asked) -> Figure:
    reply = await asked.generate(asked.text(size, "fresh", size), 1)
    return Figure(reply.seconds, (reply,))


async def answer(opening: str, asked: Asked) -> Figure:
    """The whole answer, its prompt included, by its tokens."""
    reply = await asked.generate(opening + asked.text(60, opening) + "\n", asked.sizes.answer)
    return _by_token(reply.seconds, [reply])


async def warm_chat(asked: Asked) -> Figure:
    chat = Talk(asked.text(asked.sizes.chats[0][1], "warm"))
    before = await chat.turn(asked)
    reply = await chat.turn(asked)
    return Figure(reply.first, (before, reply))


async def turns(chats: int, size: int, asked: Asked) -> Figure:
    """The mean of the second and third turns."""
    talking = [Talk(asked.text(size, "turns", chats, number)) for number in range(chats)]
    replies = [await chat.turn(asked) for _ in range(3) for chat in talking]
    later = replies[chats:]
    return Figure(sum(reply.seconds for reply in later) / len(later), tuple(replies))


async def past_the_end(asked: Asked) -> Figure:
    """The context is filled to two thirds by the prompt, and the answer is as long as the context."""
    small = asked.sizes.short_context
    await asked.generate("Hi", 1, context=small)  # another context is another load
    prompt = asked.text(small * 2 // 3, "past the end")
    reply = await asked.generate(prompt, small, context=small)
    return _by_token(reply.seconds, [reply])


async def plain_model(asked: Asked) -> Figure:
    """A prompt and an answer, once the model is loaded; then it goes, because memory is the other one's."""
    await asked.generate("Hi", 1, model=PLAIN)
    reply = await asked.generate(asked.text(asked.sizes.prompts[0], "plain"), asked.sizes.answer // 2, model=PLAIN)
    await asked.server.unload(PLAIN)
    return Figure(reply.seconds, (reply,))


async def at_once(equal: bool, asked: Asked) -> Figure:
    """Until all are answered, by the tokens of all."""
    prompts = [asked.text(60, "at once", equal or number) for number in range(TOGETHER)]
    await asked.generate("Hi", 1)
    started = asyncio.get_running_loop().time()
    replies = await asyncio.gather(*(asked.generate(f"{prompt}\n", asked.sizes.answer) for prompt in prompts))
    return _by_token(asyncio.get_running_loop().time() - started, replies)


async def short_behind_long(asked: Asked) -> Figure:
    """The short request alone; the long prompt began a moment before."""
    await asked.generate("Hi", 1)
    long = asyncio.create_task(asked.generate(asked.text(asked.sizes.long_prompt, "long"), 1))
    await asyncio.sleep(_BEGUN)
    short = await asked.generate(asked.text(20, "short"), 16)
    return Figure(short.seconds, (short, await long))


class Talk:
    """A conversation that begins with a text and goes on."""

    def __init__(self, text: str) -> None:
        self._messages = [{"role": "user", "content": f"{text} Say ok."}]

    async def turn(self, asked: Asked) -> OllamaReply:
        reply = await asked.chat(self._messages, 8)
        self._messages += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": "Continue."}]
        return reply


def _by_token(seconds: float, replies: Sequence[OllamaReply]) -> Figure:
    tokens = sum(reply.tokens for reply in replies)
    return Figure(1000 * seconds / max(1, tokens), tuple(replies))
