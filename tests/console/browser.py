"""A headless Chromium, driven by what a person has: keys, and what stands on the page."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_S = 40.0
WIDTH, HEIGHT = 1200, 760
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server")
PICTURES = os.environ.get("ROSTRUM_PICTURES")  # a folder that gets the pictures of docs


class Browser:
    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        self.driver.get(address)

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def text(self, selector: str = "body") -> str:
        """What stands there; empty if there is no such thing."""
        return str(self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def press(self, *keys: str) -> None:
        """Keys, where the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def focus(self) -> str:
        """What has it, as its role and name."""
        return str(
            self.script(
                "const one = document.activeElement; return [one.id, one.getAttribute('role') ?? one.tagName,"
                " one.getAttribute('aria-label') ?? one.innerText ?? ''].join('|')"
            )
        )

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + TIMEOUT_S
        while not (found := holds()):
            assert time.monotonic() < end, f"not within {TIMEOUT_S:g} s: {what}; the page says:\n{self.text()}"
            time.sleep(0.05)
        return found

    def sees(self, text: str, selector: str = "body") -> None:
        self.until(lambda: text in self.text(selector), f"{text!r} at {selector}")

    def picture(self, name: str) -> None:
        if PICTURES:
            self.driver.save_screenshot(str(Path(PICTURES) / f"{name}.png"))

    def complaints(self) -> list[str]:
        """What the browser's console has against the page: blocked scripts, errors; not answers of 4xx."""
        found = (one["message"] for one in self.driver.get_log("browser") if one["level"] == "SEVERE")
        return [one for one in found if "Failed to load resource" not in one]


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs python3-selenium: .ci/setup apps")
    from selenium.webdriver.chrome.service import Service

    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("needs chromium and chromium-driver: .ci/setup apps")
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--window-size={WIDTH},{HEIGHT}"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
