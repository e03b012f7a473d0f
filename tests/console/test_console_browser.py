"""The console in headless Chromium: before a lab with transfers, groups and a killed receiver, and at 500 servers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rostrum.controller.core.values import S, Settings
from rostrum.controller.northbound.rest.access import AccessOptions, new_token
from rostrum.controller.northbound.thrift.codec import idl
from rostrum.lab.lab import Lab

from tests.console.browser import Browser, browser
from tests.controller.fakes import Running, running, until
from tests.controller.northbound.test_console import large

pytestmark = [pytest.mark.apps, pytest.mark.timeout(240)]

DOWN, ENTER, ESCAPE, TAB = "\ue015", "\ue007", "\ue00c", "\ue004"
BACKSPACE, END, SHIFT = "\ue003", "\ue010", "\ue008"
HOSTILE = '<img src=x onerror="window.stolen=1"><script>window.stolen=1</script>\'"&lt;'


@pytest.fixture
def page() -> Iterator[Browser]:
    with browser() as made:
        yield made


@contextlib.contextmanager
def forwarded(place: Path) -> Iterator[str]:
    """A lab's manager is reached by its unix socket; a browser needs an address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["socat", f"TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr", f"UNIX-CONNECT:{place}"]
    program = subprocess.Popen(command)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        program.terminate()
        program.wait()


def test_a_lab__transfers_a_killed_receiver_groups_light_and_findings(page: Browser) -> None:
    with Lab("hybrid-4x2", name="console", or_another=True) as lab, forwarded(lab.run / "manager.sock") as url:
        page.open(f"{url}/")
        page.sees("8 of 8 agents", "#health")
        assert page.text("#access") == "Read-only"
        h1, h7 = lab.host("h1"), lab.host("h7")
        with h1.publisher("ticks"), lab.host("h3").join("ticks"), h7.join("ticks"):
            page.press("4")
            page.sees("ticks", "#list-groups")
            page.press("3")
            # h7 stands still, so that the transfer is seen while it waits for it.
            h7.pause()
            sending = h1.start_send(size="64M", to=["h3", "h5", "h7"], name="weights").until("high-rate")
            page.sees("h1", "#list-transfers")
            page.press(TAB, DOWN, ENTER)
            for name in ("h3", "h5", "h7"):
                page.sees(name, "#list-receivers")
            page.sees("receivers", "#detail")
            page.press("2")
            page.sees("tor1", "#panel")
            page.sees("steady", "#panel")
            page.picture("console-light")
            page.press("3", TAB, DOWN, ENTER)
            h7.kill()
            result = sending.wait()
            assert not result.ok
            page.sees("failed", "#list-receivers")
            page.picture("console-transfers")
            page.press(ESCAPE, "1")
            page.sees("gone", "#list-servers")
            page.sees("1 of 2 servers up", "#panel")
            page.picture("console-fabric")
            page.press("4")
            page.until(
                lambda: "h7" in page.text("#list-groups") or "none" in page.text("#list-groups"), "who holds ticks up"
            )
        page.press("5")
        page.sees("objects", "#panel")
        page.press("6")
        page.sees("h7", "#panel")
        assert page.complaints() == []
        page.open(f"{url}/docs")
        page.sees("/v1/overview")
        assert page.complaints() == []


class Threaded:
    """A manager over devices in memory, which runs while the browser is used."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ready, self.loop = folder, threading.Event(), asyncio.new_event_loop()
        self.ended = asyncio.Event()
        self.manager: Running | None = None
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> Threaded:
        self.thread.start()
        assert self.ready.wait(60) and self.manager, self.failure
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join(60)
        self.loop.close()

    def do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:
            self.failure = error
        finally:
            self.ready.set()

    async def _serve(self) -> None:
        async with running(self.folder, Settings(boot_id=1, lease_ns=3600 * S), large()) as self.manager:
            self.ready.set()
            await self.ended.wait()


async def busy(manager: Running) -> list[Any]:
    """Hundred senders to four hundred receivers each; the first one's has a cause that wants to be a page."""
    names = list(manager.topology.servers)
    agents = await asyncio.gather(*(manager.agent(name) for name in names[:100]))
    for name, agent in zip(names, agents, strict=False):
        agent.request(f"r-{name}", name, *names[100:], wait_ms=120_000)
    core = manager.app.rest.core
    await until(lambda: len(core.transfers) == 100, "all asked")
    await until(lambda: any(path.granted for path in core.paths.live()), "one is granted")
    for path in list(core.paths.live()):
        if path.granted:
            rows = [idl.ReceiverReport(name, "receiving", HOSTILE, 0, 0, 1, 0) for name in names[100:]]
            report = idl.TransferReport(path.request.request_id, path.id, "high-rate", HOSTILE, 1, 1, 0, 0, rows)
            agents[names.index(path.request.sender)].say("report", report=report)
    return agents


def test_500_servers__read_by_keyboard_changed_with_a_token_and_nothing_from_outside_runs(
    page: Browser, tmp_path: Path
) -> None:
    token = new_token(tmp_path / "tokens", "alice", "t", "write")
    reader = new_token(tmp_path / "tokens", "bob", "t", "read")
    (tmp_path / "run").mkdir()
    with Threaded(tmp_path / "run") as place:
        manager = place.manager
        assert manager
        manager.app.access.options = AccessOptions(tokens=tmp_path / "tokens")
        agents = place.do(busy(manager))
        page.open(f"{manager.url}/console")
        page.sees("500 servers", "#panel")
        page.sees("100 of 500 agents", "#health")
        rows = "return document.querySelectorAll('#list-servers .row').length"
        assert page.script("return document.querySelectorAll('.rack').length") == 25
        assert 5 < page.script(rows) < 60  # of 500
        page.picture("console-500")

        page.press("/")
        page.press(*"h499", ENTER)
        page.until(lambda: page.script(rows) == 1, "one server is left")
        page.press(DOWN, ENTER)
        page.sees("tor25", "#detail")
        page.press(ESCAPE, "/")
        page.press(*BACKSPACE * 4, ESCAPE)
        page.press("3", TAB)
        assert "listbox" in page.focus()
        page.press(END)
        last = page.script("return document.querySelector('#list-transfers [aria-selected=true]').ariaPosInSet")
        assert int(last) >= 100
        page.sees("<img src=x", "#list-transfers")  # as text, in the oldest, which were granted
        page.press(ENTER)
        page.sees("400 receivers", "#detail")
        assert page.script("return document.querySelectorAll('#list-receivers .row').length") < 60
        stolen = "return window.stolen === undefined && !document.querySelector('main img, main script, body > script')"
        assert page.script(stolen)

        # The policy holds: a script in the page itself does not run, and nothing is asked of other hosts.
        page.script(
            "const one = document.createElement('script'); one.text = 'window.stolen = 2';"
            "document.body.append(one); one.remove()"
        )
        assert page.script("return window.stolen === undefined")
        assert any("Content Security Policy" in one for one in page.complaints())
        asked = page.script("return performance.getEntriesByType('resource').map((one) => new URL(one.name).origin)")
        assert set(asked) == {manager.url}

        cancel = "return [...document.querySelectorAll('#detail button')].some((one) => one.innerText === 'Cancel')"
        for wrong in ("nonsense", reader):
            enter_token(page, wrong)
            page.until(lambda: page.text("#access") == "Read-only", "it only reads")
            assert not page.script(cancel)
        enter_token(page, token)
        page.sees("May change things", "#access")
        page.until(lambda: page.script(cancel), "a transfer can be cancelled")
        path = page.script("return document.querySelector('#detail table:last-of-type td')?.innerText") or ""
        page.script(
            "[...document.querySelectorAll('#detail button')].find((one) => one.innerText === 'Cancel').focus()"
        )
        page.press(ENTER)
        assert "No" in page.focus()  # a slip does nothing
        page.press(SHIFT + TAB, ENTER)  # back to "Yes"
        core = manager.app.rest.core
        page.until(lambda: core.counts or path, "it was asked")
        page.until(lambda: any(one.final for one in core.paths.values()), "a path was given back")
        page.press("1")
        nameless = """return [...document.querySelectorAll('button, input, [role=listbox], [role=tab], dialog')]
            .filter((one) => !(one.innerText || one.ariaLabel || one.labels?.length ||
                one.getAttribute('aria-labelledby'))).length"""
        assert page.script(nameless) == 0
        order = []
        page.script("document.querySelector('.skip').focus()")
        for _ in range(4):
            page.press(TAB)
            order.append(page.focus().split("|")[0])
        assert order == ["search", "access", "help", "tab-fabric"], order
        place.do(closed(agents))


async def closed(agents: list[Any]) -> None:
    await asyncio.gather(*(one.close() for one in agents))


def enter_token(page: Browser, token: str) -> None:
    page.script("document.getElementById('access').focus()")
    page.press(ENTER)
    page.script("document.getElementById('token-text').focus()")
    page.press(*token, ENTER)
    page.until(lambda: not page.script("return document.getElementById('token').open"), "the dialog closes")
