"""What a person sees and does on the page."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any

import httpx
import pytest
from selenium.webdriver import Keys

from pilotfish.daemon.control.control_client import ControlClient
from pilotfish.daemon.control.plans import Registration, Report
from pilotfish.daemon.lab.workloads import load_workloads
from tests.browser.chromium import NETWORK
from tests.browser.conftest import MODEL
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.model]

SCRIPT = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
COPYING = next(workload.prompt for workload in load_workloads() if workload.name == "code-edit")
COUNTING = "Repeat after me: one two three four five six seven eight. one two three four five six seven eight. one two"
WATCH = """
window.colouredWhileAnswering = false;
const list = document.getElementById("request-list");
const look = () => {
  const answering = document.querySelector(".request header .about")?.textContent === "answering";
  window.colouredWhileAnswering ||= answering && Boolean(list.querySelector("mark"));
  window.acceptedInStrip ||= Boolean(list.querySelector(".strip .accepted")); // it has the last rounds alone
};
new MutationObserver(look).observe(list, { childList: true, subtree: true, characterData: true });
"""
CARD = f'.model[data-model="{MODEL}"]'


def test_a_model_that_a_request_loads_appears_and_its_drafts_are_coloured_while_it_writes(opened, served):
    opened.until(f"{CARD} .state", "Ready, not loaded")
    opened.run(WATCH)
    asking = served.asking(COPYING, 120)
    opened.until(f"{CARD} .state", "Speculates")
    wait_until(lambda: opened.all(".request .text mark"), "no draft is coloured")
    assert opened.text(".request header h3") == MODEL
    assert "python-httpx" in opened.text(".request .about:not(header *)")
    asking.join()
    opened.until(".request header", "done")
    assert opened.run("return colouredWhileAnswering"), "nothing was coloured before the answer was complete"
    assert opened.run("return acceptedInStrip"), "no accepted token was in the strip"
    assert "plain would be" in opened.text(".request .rates")
    opened.until("#event-list", f"{MODEL}: in the lane")
    opened.until("#by-client", "python-httpx")
    opened.until("#measured-note", "Its lane allows")
    assert opened.console() == []


def test_the_switch_changes_the_config_file_and_the_next_request(opened, served):
    opened.click(f"{CARD} .switch")
    opened.until("#notice", f"{MODEL} is off from the next request on")
    assert f'[models."{MODEL}"]\nenabled = false' in served.config.read_text()
    assert served.config.read_text().startswith("# mine\n")
    opened.until(f"{CARD} .state", "Switched off")
    opened.until(f"{CARD} .why", str(served.config))
    assert served.ask(COUNTING, 30)["pilotfish"]["drafted"] == 0
    opened.click("#master")
    opened.until("#notice", "Speculation is off")
    opened.click("#master")
    opened.until("#notice", "Speculation is on")
    opened.click(f"{CARD} .switch")
    opened.until("#notice", f"{MODEL} is on")
    wait_until(lambda: state_of(served) in ("active", "parked"), "it is not on again")
    assert opened.console() == []


def test_why_a_model_does_not_speculate_is_there_without_a_click(opened):
    opened.until('.model[data-model="broken:latest"] .state', "Cannot speculate")
    opened.until('.model[data-model="broken:latest"] .why', "has no tokenizer")
    assert opened.find('.model[data-model="broken:latest"] .why').is_displayed()


def test_the_playground_compares_the_ids(opened, served):
    served.ask("Hi", 2)
    opened.find("#playground-form:not([hidden])")
    opened.run("document.getElementById('playground-tokens').value = 24")
    opened.run("document.getElementById('playground-prompt').value = arguments[0]", SCRIPT)
    opened.run("document.getElementById('playground-run').scrollIntoView()")
    opened.click("#playground-run")
    opened.until("#playground-verdict", "The same ")
    assert opened.text(".answer:nth-child(1) .text") == opened.text(".answer:nth-child(2) .text") != ""
    assert opened.console() == []


def state_of(served):
    return next(model["state"] for model in served.state()["models"] if model["name"] == MODEL)


def test_a_script_stays_text_wherever_it_stands(opened, served):
    said = f"{SCRIPT} was said"
    request = {"request": 1, "at": time.time()}
    round = {"width": 2, "proposed": 1, "accepted": 1, "committed": 2, "seconds": 0.1, "saved_seconds": 0.0}
    pieces = [{"text": said, "drafted": True}]
    events = [
        {**request, "kind": "opened", "client": SCRIPT, "prompt_tokens": 3, "drafters": [SCRIPT], "joined": False},
        {**request, **round, "kind": "round", "drafter": SCRIPT, "pieces": pieces},
    ]
    with fake_runner(served, SCRIPT, events):
        wait_until(lambda: any(said == mark.text for mark in opened.all(".request mark")), "it was not shown")
        wait_until(lambda: SCRIPT in [title.text for title in opened.all(".model h3")], "its card does not come")
        opened.until("#event-list", SCRIPT)
        assert opened.driver.title == "pilotfish"
        assert opened.all("main script, main img") == []
        assert opened.console() == []


def test_a_tab_that_nobody_looks_at_keeps_no_more_than_one_that_is_seen(opened, served):
    opened.run("window.requestAnimationFrame = () => 1")  # as for a tab behind another
    round = {"kind": "round", "proposed": 0, "accepted": 0, "committed": 1, "seconds": 0.1, "saved_seconds": 0.0}
    pieces = [{"text": "word " * 100, "drafted": False}]
    ended = [
        {"request": number, "at": time.time(), **event}
        for number in range(20)
        for event in ({**round, "pieces": pieces}, {"kind": "ended", "stop": "limit"})
    ]
    endless = [{"request": number, "at": time.time(), **round, "pieces": pieces * 10} for number in range(100, 200)]
    with fake_runner(served, "many", ended + endless[:1]):
        wait_until(lambda: len(opened.all(".request")) == 6, "earlier requests stay")
    with fake_runner(served, "lost", endless):
        wait_until(lambda: len(opened.all(".request")) == 32, "requests without an end stay")
    assert opened.console() == []


def fake_runner(served, model, events):
    """A runner of another program, which is on another loop and tells `events` once."""
    loop = asyncio.new_event_loop()
    told = [*events]

    def live(most: int) -> list[dict[str, Any]]:
        taken = [*told]
        told.clear()
        return taken

    async def follow(plan: object) -> None:
        pass

    class Running:
        def __enter__(self):
            self.thread = threading.Thread(target=loop.run_forever, daemon=True)
            self.thread.start()
            registration = Registration(os.getpid(), 4711, model, time.time(), live=True)

            async def start() -> None:
                self.link = ControlClient(served.socket, registration, follow, Report, retry=0.05, live=live)
                self.link.start()

            asyncio.run_coroutine_threadsafe(start(), loop).result()

        def __exit__(self, *_):
            asyncio.run_coroutine_threadsafe(self.link.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self.thread.join()

    return Running()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (360, False), (3840, True)])
def test_axe_finds_nothing_and_nothing_is_cut_off(opened, served, width, dark):
    if not served.state()["runners"]:
        served.ask(COUNTING, 40)
    opened.look(width=width, dark=dark)
    opened.until("#by-model", MODEL)
    opened.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert opened.violations() == []
    assert opened.run("return document.documentElement.scrollWidth - innerWidth") <= 0


def test_the_keyboard_reaches_every_switch(opened):
    opened.run("document.body.focus()")
    seen = []
    for _ in range(40):
        opened.driver.switch_to.active_element.send_keys(Keys.TAB)
        seen.append(opened.run("return document.activeElement.getAttribute('aria-label') ?? document.activeElement.id"))
        if f"Speculation for {MODEL}" in seen:
            break
    assert "master" in seen
    assert f"Speculation for {MODEL}" in seen


def test_without_leave_one_looks_on(served, browser):
    browser.driver.delete_all_cookies()
    browser.look()
    browser.go(served.page)
    browser.until("#notice", "run `pilotfish open`")
    assert not browser.find(f"{CARD} .switch").is_enabled()
    asking = served.asking(COUNTING, 30)
    browser.until(".request .text", "Run `pilotfish open` to see what is written.")
    asking.join()
    assert browser.all(".request mark") == []
    assert browser.console() == []


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}])
@pytest.mark.parametrize("path", ["", "api/state", "api/live", "static/main.js"])
def test_other_pages_and_names_are_refused(served, path, headers):
    assert httpx.get(served.page + path, headers=headers).status_code == 403


def test_two_tabs_a_killed_runner_and_a_new_daemon(opened, served):
    first = opened.driver.current_window_handle
    second = opened.tab(served.page)
    opened.until("#connection", "Live")
    if not served.state()["runners"]:
        served.ask("Hi", 2)
    opened.until(f"{CARD} .facts", "process")
    asking = served.asking(COPYING, 2000)
    wait_until(lambda: opened.all(".request .text mark"), "nothing is written")
    os.kill(served.state()["runners"][0]["pid"], signal.SIGKILL)
    asking.join()
    for tab in (second, first):
        opened.driver.switch_to.window(tab)
        opened.until(f"{CARD} .state", "Ready, not loaded")
        opened.until("#event-list", "ended")

    served.stop(signal.SIGKILL)
    for tab in (second, first):
        opened.driver.switch_to.window(tab)
        opened.until("#connection", "No connection")
    served.start()
    for tab in (second, first):
        opened.driver.switch_to.window(tab)
        opened.until("#connection", "Live")
    served.ask(COUNTING, 40)
    wait_until(lambda: opened.text(f"{CARD} .state") in ("Speculates", "Guesses paused"), "the model does not appear")
    assert opened.find(f"{CARD} .switch").is_enabled(), "the cookie is still good"
    assert [line for line in opened.console() if NETWORK not in line] == []
