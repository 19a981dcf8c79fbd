"""Chromium without a window, driven by selenium: what a person does on the page, and what they see."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.waiting import wait_until

NPM = Path(__file__).resolve().parents[2] / ".cache" / "npm"
NETWORK = "net::ERR_"  # what Chromium says of a server that is gone, whoever asks


class Browser:
    """One window. `text`, `click` and the like wait until there is something to look at."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def go(self, url: str) -> None:
        self.driver.get(url)

    def find(self, selector: str) -> WebElement:
        return wait_until(lambda: next(iter(self.all(selector)), None), f"there is no {selector}")

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def until(self, selector: str, says: str) -> None:
        wait_until(lambda: says in self.text(selector), f"{selector} never says {says!r}: {self.text(selector)!r}")

    def click(self, selector: str) -> None:
        element = self.find(selector)
        wait_until(element.is_enabled, f"{selector} cannot be clicked")
        element.click()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def console(self) -> list[str]:
        """What the page said on the console since the last call, at any level."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """See the page at this size and in these colours, without motion."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def tab(self, url: str) -> str:
        """Another tab, which is in front from now on; its handle."""
        self.driver.switch_to.new_window("tab")
        self.go(url)
        return self.driver.current_window_handle

    def violations(self) -> list[str]:
        """What axe-core finds wrong with the page as it is now."""
        self.run(axe().read_text())
        found = self.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]


def axe() -> Path:
    named = os.environ.get("PILOTFISH_TEST_AXE")
    path = Path(named) if named else NPM / "node_modules" / "axe-core" / "axe.min.js"
    assert path.is_file(), f"{path} is missing: run `make npm`"
    return path


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A new one, with a profile of its own."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_path = shutil.which("chromedriver")
    assert binary, "there is no Chromium. Debian and Ubuntu: sudo apt-get install chromium chromium-driver"
    assert driver_path, "there is no chromedriver. Debian and Ubuntu: sudo apt-get install chromium-driver"
    options = ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    flags = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}"]
    if os.geteuid() == 0:  # where tests run as root, Chromium's own sandbox cannot be had
        flags.append("--no-sandbox")
    for flag in flags:
        options.add_argument(flag)
    driver = Chrome(options=options, service=ChromeService(driver_path))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
