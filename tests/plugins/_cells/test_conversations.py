"""What slots give up and get back, within how many bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.plugins._cells.cell_memory import CellMemory
from pilotfish.plugins._cells.conversations import Conversations
from pilotfish.plugins._cells.slot import CellSlot
from tests.plugins._cells.fake_cells import BYTES, FakeContext, answer, slot, written

PLENTY = 1 << 20
CELL = BYTES + 4  # a cell's state and its id

APPLES = [1, *range(100, 115)]
PEARS = [1, *range(200, 215)]
PLUMS = [1, *range(300, 315)]


def store(room: int | Callable[[], int] = PLENTY) -> Conversations:
    return Conversations(lambda held: room() if callable(room) else room)


def ask(conversations: Conversations, mine: CellSlot, prompt: list[int], n: int = 0) -> int:
    """How many tokens of `prompt` had not to be fed."""
    conversations.hand_over(mine, prompt)
    kept = mine.history.reusable(prompt)
    answer(mine, prompt, n)
    return kept


def test_two_chats_in_turns_are_fed_once_each() -> None:
    conversations, mine = store(), slot()
    fed = [ask(conversations, mine, chat) for chat in (APPLES, PEARS)]
    again = [ask(conversations, mine, [*chat, 7, 8]) for chat in (APPLES, PEARS, APPLES, PEARS)]
    assert fed == [0, 1]  # what they begin with
    assert again == [15, 15, 17, 17]
    assert (conversations.summary.hits, conversations.summary.entries) == (4, 1)


def test_the_answer_is_remembered_with_the_prompt() -> None:
    conversations, mine = store(), slot()
    ask(conversations, mine, APPLES, n=3)
    ask(conversations, mine, PEARS)
    assert ask(conversations, mine, [*APPLES, 900, 901, 5, 6]) == len(APPLES) + 2


def test_a_chat_that_goes_on_costs_no_copy() -> None:
    conversations, mine = store(), slot()
    for turn in range(5):
        ask(conversations, mine, [*APPLES, *range(turn)], n=2)
    assert isinstance(mine.context, FakeContext)
    assert mine.context.copies == 0


def test_one_that_another_begins_with_is_not_kept_beside_it() -> None:
    conversations, mine, other = store(), slot(), slot()
    ask(conversations, mine, APPLES)
    ask(conversations, mine, PEARS)
    answer(other, [*APPLES, 7, 8], 0)
    conversations.put_aside(other)
    assert conversations.summary.entries == 1  # the longer one took the place of the shorter
    answer(other, APPLES, 0)
    conversations.put_aside(other)
    assert conversations.summary.entries == 1  # and the shorter one is found in the longer
    assert ask(conversations, mine, [*APPLES, 7, 8, 9]) == len(APPLES) + 1


@pytest.mark.parametrize(
    "memory", [CellMemory(window=4), CellMemory(running=True, snapshots=3)], ids=["window", "state"]
)
def test_one_that_another_begins_with_is_kept_where_the_longer_one_does_not_lead_back(memory: CellMemory) -> None:
    conversations, mine = store(), slot(memory=memory)
    longer = [*APPLES, *range(900, 910), 5, 6, 7]
    ask(conversations, mine, longer, n=5)
    ask(conversations, mine, PEARS)
    ask(conversations, mine, APPLES, n=5)
    ask(conversations, mine, PEARS)
    assert ask(conversations, mine, [*APPLES, 900, 901, 902, 903, 8]) == len(APPLES) + 4


def test_a_prefix_that_a_window_lost_is_no_reason_to_stay() -> None:
    conversations, mine = store(), slot(memory=CellMemory(window=4, ring=32))
    ask(conversations, mine, [1, *range(100, 160)])
    shared = [1, *range(100, 150), 7]
    assert ask(conversations, mine, shared) == 51  # its window is there
    assert ask(conversations, mine, [1, *range(100, 120), 7]) == 0
    assert conversations.summary.entries == 1  # and what was there is put aside
    assert ask(conversations, mine, [*shared, 8]) == 51


def test_one_that_is_left_early_stays_for_who_comes_back_to_it() -> None:
    conversations, mine = store(), slot()
    ask(conversations, mine, APPLES)
    ask(conversations, mine, PEARS)
    assert ask(conversations, mine, [*APPLES[:6], 3, 4]) == 6
    assert ask(conversations, mine, APPLES) == 15


def test_a_long_one_is_not_copied_to_save_a_token() -> None:
    conversations, mine = store(), slot()
    long = [1, 2, 3, *range(100, 300)]
    ask(conversations, mine, long)
    ask(conversations, mine, [1, *range(400, 420)])
    assert ask(conversations, mine, [1, 2, 5, 6]) == 1
    assert conversations.summary.hits == 0
    assert ask(conversations, mine, [*long[:20], 6]) == 20
    assert conversations.summary.hits == 1


def test_the_least_recently_used_goes_first_and_the_bytes_stay_within_the_room() -> None:
    conversations, mine = store(3 * 16 * CELL), slot()
    for chat in (APPLES, PEARS, PLUMS):
        ask(conversations, mine, [*chat, 5])
    ask(conversations, mine, [*APPLES, 6])  # in use again
    ask(conversations, mine, [1, *range(400, 416)])
    ask(conversations, mine, [1, *range(500, 516)])
    assert conversations.summary.bytes <= conversations.summary.room
    assert conversations.summary.forgotten == 1
    assert ask(conversations, mine, [*PEARS, 6]) == 1
    assert conversations.summary.hits == 1


def test_one_that_is_larger_than_the_room_takes_no_other_with_it() -> None:
    conversations, mine = store(17 * CELL), slot()
    ask(conversations, mine, APPLES)
    ask(conversations, mine, [2, *range(200, 260)])
    ask(conversations, mine, [3, 4])
    assert (conversations.summary.entries, conversations.summary.refused) == (1, 1)
    assert ask(conversations, mine, APPLES) == 15


def test_memory_that_gets_short_is_given_back_at_the_next_request() -> None:
    rooms = [PLENTY]
    conversations, mine = store(lambda: rooms[-1]), slot()
    for chat in (APPLES, PEARS, PLUMS):
        ask(conversations, mine, chat)
    assert conversations.summary.entries == 2
    rooms.append(0)
    ask(conversations, mine, [*PLUMS, 5])
    assert (conversations.summary.entries, conversations.summary.bytes) == (0, 0)
    assert conversations.summary.forgotten == 2


def test_the_room_is_told_what_is_held() -> None:
    told: list[int] = []
    conversations, mine = Conversations(lambda held: told.append(held) or PLENTY), slot()  # type: ignore[func-returns-value]
    ask(conversations, mine, APPLES)
    ask(conversations, mine, PEARS)
    ask(conversations, mine, [*PEARS, 4])
    assert told[-1] == 15 * CELL


@pytest.mark.parametrize("broken", ["state", "memory", "restore"])
def test_what_fails_is_counted_and_the_prompt_is_fed_again(broken: str) -> None:
    conversations, mine = store(), slot(broken=broken)
    for prompt in (APPLES, PEARS):
        ask(conversations, mine, prompt)
    ask(conversations, mine, APPLES)
    assert [token for token, _ in written(mine)] == APPLES[:-1]
    assert conversations.summary.failed >= 1
    assert conversations.summary.hits == 0


def test_what_is_put_aside_before_the_slot_is_cleared_comes_back() -> None:
    conversations, mine = store(), slot()
    ask(conversations, mine, APPLES)
    conversations.put_aside(mine)
    mine.clear()
    answer(mine, PEARS, 0)
    assert ask(conversations, mine, APPLES) == 15


def test_an_empty_slot_is_not_put_aside() -> None:
    conversations = store()
    conversations.put_aside(slot())
    assert conversations.summary.entries == 0


def test_several_slots_share_one_store() -> None:
    conversations, first, second = store(), slot(), slot()
    ask(conversations, first, APPLES)
    ask(conversations, first, PEARS)
    assert ask(conversations, second, [*APPLES, 5]) == 15


chats = st.lists(st.integers(0, 2), min_size=1, max_size=14)


@given(st.lists(st.tuples(chats, st.integers(0, 4), st.booleans()), max_size=12), st.integers(0, 40), st.booleans())
def test_no_cell_depends_on_what_was_remembered_or_forgotten(
    requests: list[tuple[list[int], int, bool]], room: int, exact: bool
) -> None:
    """In a lane that is not exact a cell says how long the block was that wrote it: the strictest reader there is."""
    conversations, mine = store(room * CELL), slot(exact=exact)
    for prompt, n, cached in requests:
        if cached:
            ask(conversations, mine, prompt, n)
        else:
            conversations.put_aside(mine)
            mine.clear()
            answer(mine, prompt, n)
        alone = slot(exact=exact)
        answer(alone, prompt, n)
        if exact:
            assert list(mine.tokens) == list(alone.tokens) == [token for token, _ in written(mine)]
        else:
            assert written(mine) == written(alone)
        assert conversations.summary.bytes <= room * CELL
