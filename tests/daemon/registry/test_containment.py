"""What plugins raise, in words, and as errors that an event loop survives."""

from __future__ import annotations

import asyncio

import pytest

from pilotfish.daemon.registry.containment import contained, guarded, one_line, said, where
from pilotfish.hooks.errors import RequestError
from tests.fakes.misbehaviour import RAISED, Unspeakable


@pytest.mark.parametrize("error", RAISED)
def test_everything_can_be_said_and_raised_where_others_wait(error: BaseException) -> None:
    async def raised() -> None:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(contained(error))
        await asyncio.wait_for(future, 60)

    assert type(error).__name__ in where(error)
    with pytest.raises(Exception) as found:  # noqa: PT011  # which is the point: no BaseException
        asyncio.run(raised())
    assert error in (found.value, found.value.__cause__)


def test_an_error_like_any_other_stays_what_it_is() -> None:
    error = RequestError("too long")
    assert contained(error) is error
    with pytest.raises(RequestError, match="too long"):
        guarded(lambda: (_ for _ in ()).throw(error))
    assert guarded(lambda: 5) == 5


def test_a_plugins_text_is_one_line_that_can_be_shown_and_has_an_end() -> None:
    assert one_line("two\nlines\tand \x1b[31mred\x07 \ud800") == "two lines and [31mred"
    assert len(one_line("x" * 10_000_000)) == 1000
    assert said(Unspeakable()) == "(its text cannot be had)"
