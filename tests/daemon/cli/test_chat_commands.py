"""What is typed in a chat besides messages, and how messages of several lines come together."""

from __future__ import annotations

import stat

import pytest

from pilotfish.daemon.cli.chat_commands import HELP, KEYS, SET_HELP, SHOW_HELP, ChatCommands, Leave, typed
from pilotfish.daemon.cli.chat_input import KEPT, ChatInput, TypedHistory, TypedText
from pilotfish.daemon.cli.terminal_chat import AnswerFigures, TerminalChat
from pilotfish.hooks.errors import RequestError, WorldError

SHOWN = {
    "license": "MIT",
    "modelfile": "FROM m\n",
    "parameters": 'stop "##"',
    "system": "Be a cat.",
    "details": {"parameter_size": "1B", "quantization_level": "Q4_0"},
    "model_info": {"general.architecture": "llama", "llama.context_length": 2048},
    "capabilities": ["completion", "tools"],
}


class FakeClient:
    """Answers every request with `SHOWN`; for a model named `none` as a server that has not got it."""

    def __init__(self):
        self.asked = []

    async def stream(self, path, body):
        self.asked.append((path, body))
        if body["model"] == "none":
            raise WorldError("model 'none' not found")
        yield SHOWN


class Chat:
    """A chat with commands; `told` is what they answered."""

    def __init__(self):
        self.state, self.client, self.told, self.kept = TerminalChat("m"), FakeClient(), [], []
        self.commands = ChatCommands(self.state, self.client, self.told.append, self.kept.append)

    async def obey(self, *lines):
        for line in lines:
            await self.commands.obey(line)


@pytest.fixture
def chat():
    return Chat()


class TestSet:
    @pytest.mark.parametrize(
        ("name", "values", "value"),
        [
            ("temperature", ["0"], 0),
            ("top_p", ["0.9"], 0.9),
            ("seed", ["-1"], -1),
            ("stop", ["##", "b"], ["##", "b"]),
            ("use_mmap", ["false"], False),
        ],
    )
    def test_parameters_have_the_type_that_a_request_wants(self, name, values, value):
        assert typed(name, values) == value
        assert type(typed(name, values)) is type(value)

    @pytest.mark.parametrize(
        ("name", "values", "why"),
        [
            ("seed", ["x"], "must be of type integer"),
            ("temperature", ["nan"], "must be"),
            ("use_mmap", ["1"], "must be of type boolean"),
            ("warmth", ["1"], "there is no parameter 'warmth'; there are num_keep"),
            ("seed", ["1", "2"], "takes one value"),
        ],
    )
    def test_others_are_refused(self, name, values, why):
        with pytest.raises(RequestError, match=why):
            typed(name, values)

    async def test_everything_that_is_set_goes_along(self, chat):
        chat.state.messages.append({"role": "user", "content": "hi"})
        await chat.obey("/set system Be brief.", "/set parameter seed 3", "/set format json", "/set think high")
        assert chat.state.body() == {
            "model": "m",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
            "options": {"seed": 3},
            "format": "json",
            "think": "high",
        }
        await chat.obey("/set system", "/set noformat", "/set nothink", "/set nospeculate")
        assert chat.state.body() == {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "options": {"seed": 3, "speculate": False},
            "think": False,
        }

    async def test_what_is_shown_and_what_is_kept(self, chat):
        await chat.obey("/set verbose", "/set drafts", "/set nohistory")
        assert (chat.state.figures, chat.state.show_drafts, chat.kept) == (AnswerFigures.VERBOSE, True, [False])
        await chat.obey("/set quiet", "/set nodrafts", "/set history")
        assert (chat.state.figures, chat.state.show_drafts, chat.kept) == (AnswerFigures.QUIET, False, [False, True])

    @pytest.mark.parametrize("line", ["/set format xml", "/set think maybe", "/set parameter seed", "/set nothing"])
    async def test_what_is_none_is_refused_with_the_way_to_help(self, chat, line):
        with pytest.raises(RequestError, match=r"/\? set|as in:"):
            await chat.obey(line)


class TestOthers:
    @pytest.mark.parametrize(
        ("what", "text"),
        [
            ("info", "context length      2048"),
            ("license", "MIT"),
            ("modelfile", 'FROM m\nPARAMETER seed 3\nPARAMETER stop "a"\nPARAMETER stop "b"'),
            ("parameters", 'Its own:\nstop "##"\n\nSet here:\nseed'),
            ("system", "Be a cat."),
            ("template", "m says nothing of its template."),
        ],
    )
    async def test_show(self, chat, what, text):
        chat.state.options = {"seed": 3, "stop": ["a", "b"], "speculate": False}
        await chat.obey(f"/show {what}")
        assert text in chat.told[-1]
        assert "speculate" not in chat.told[-1]

    async def test_another_model_begins_another_conversation_and_one_that_is_not_there_changes_nothing(self, chat):
        chat.state.messages.append({"role": "user", "content": "hi"})
        with pytest.raises(WorldError):
            await chat.obey("/load none")
        assert (chat.state.model, len(chat.state.messages)) == ("m", 1)
        await chat.obey("/load other")
        assert (chat.state.model, chat.state.messages) == ("other", [])
        assert chat.client.asked[-1] == ("/api/chat", {"model": "other", "messages": []})

    async def test_clear_keeps_the_system_message(self, chat):
        await chat.obey("/set system Be brief.")
        chat.state.messages.append({"role": "user", "content": "hi"})
        await chat.obey("/clear")
        assert chat.state.body()["messages"] == [{"role": "system", "content": "Be brief."}]

    @pytest.mark.parametrize("line", ["/bye", "/exit", " /bye "])
    async def test_leaving(self, chat, line):
        with pytest.raises(Leave):
            await chat.obey(line)

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("/save x", "ollama create"),
            ("/set wordwrap", "the terminal wraps"),
            ("/etc/hosts is what?", r"there is no command '/etc/hosts'.*\"\"\" begins a message"),
        ],
    )
    async def test_what_is_not_here_says_what_to_do(self, chat, line, why):
        with pytest.raises(RequestError, match=why):
            await chat.obey(line)

    @pytest.mark.parametrize(
        ("line", "text"),
        [("/?", HELP), ("/help", HELP), ("/? set", SET_HELP), ("/? /show", SHOW_HELP), ("/? shortcuts", KEYS)],
    )
    async def test_help_fits_a_terminal(self, chat, line, text):
        await chat.obey(line)
        assert chat.told == [text]
        assert max(map(len, text.split("\n"))) <= 80


class TestReading:
    @staticmethod
    async def read(*typed_lines):
        """What comes of these lines; an exception among them is raised in the place of a line."""
        lines, told, entries = iter(typed_lines), [], []

        async def ask(prompt):
            line = next(lines, EOFError())
            if isinstance(line, BaseException):
                raise line
            return line

        messages = ChatInput(ask, told.append)
        while (entry := await messages.read()) is not None:
            entries.append(entry)
        return entries, told

    @pytest.mark.parametrize(
        ("lines", "entries"),
        [
            (["hi", "", "  ", "there"], [TypedText("hi"), TypedText("there")]),
            (["/bye"], [TypedText("/bye", True)]),
            (['"""one', "", '  two"""'], [TypedText("one\n\n  two")]),
            (['"""one line"""'], [TypedText("one line")]),
            (['"""/etc/hosts is a file"""'], [TypedText("/etc/hosts is a file")]),
            (['/set system """Be', 'brief."""'], [TypedText("/set system Be\nbrief.", True)]),
            (['"""left', KeyboardInterrupt(), "hi"], [TypedText("hi")]),
            (['"""never closed'], []),
        ],
    )
    async def test_lines_become_messages(self, lines, entries):
        assert (await self.read(*lines))[0] == entries

    async def test_ctrl_c_on_a_line_says_how_to_leave(self):
        assert await self.read(KeyboardInterrupt()) == ([], ["Ctrl-D or /bye leaves."])


class TestHistory:
    def test_it_comes_back_newest_first_for_its_user_alone(self, tmp_path):
        file = tmp_path / "state" / "typed"
        for text in ("one", "two\nlines", "é"):
            TypedHistory(file).append_string(text)
        assert list(TypedHistory(file).load_history_strings()) == ["é", "two\nlines", "one"]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_nothing_is_kept_that_is_not_to_be(self, tmp_path):
        TypedHistory(tmp_path / "typed", keep=False).append_string("secret")
        assert not (tmp_path / "typed").exists()

    def test_it_stays_small_and_a_broken_line_costs_only_itself(self, tmp_path):
        file = tmp_path / "typed"
        file.write_bytes(b"".join(b'"%d"\n' % number for number in range(3 * KEPT)) + b"\xff{\n")
        found = list(TypedHistory(file).load_history_strings())
        assert found[0] == str(3 * KEPT - 1)
        assert len(found) == KEPT - 1
        assert len(file.read_bytes().splitlines()) == KEPT
