"""The gNMI face of the emulated OCS, with the Open Compute Project's model (controller/southbound/ocs/ocp.py says which
paths there are): Capabilities, Get, Set and Subscribe.

A Set is taken or refused whole and disturbs no cross-connect that it does not name. Subscriptions ON_CHANGE are told
states as they change, powers at those moments; SAMPLE and POLL tell all of their paths each time. Input n is the
component in-n, output n is out-n. Everything has a bound: clients, subscriptions, a message's size, the values in it.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import grpc
from finsy.proto import gnmi, gnmi_grpc
from rostrum.controller.core.model import CrossConnectState, Pair
from rostrum.controller.southbound.ocs import ocp
from rostrum.controller.southbound.ocs.ocp import Elements, ModelError
from rostrum.lab.ocs.engine import EFFECTS, Engine
from rostrum.lab.ocs.server import COMMAND_CHARACTERS, COMMANDS_MAX, MAX_SESSIONS, LogEntry
from rostrum.topologies import secrets

log = logging.getLogger(__name__)

SAMPLE_LEAST_S = 0.01
GATHER_S = 0.001  # changes that come together are told together
CALLS_MOST = 64  # in progress

SIDES = (("inputs", "in", "input-optical-power"), ("outputs", "out", "output-optical-power"))
COMPONENT = ("components", "component")
SETTINGS = {"bidirectional": False, "cold-boot-recovery": "REMOVE"}
STATE = {
    **SETTINGS,
    "connection-recovery-capability": "REMOVE",
    # Without connection-groups: in version 0.8.0 a peer's name has to be the group's own (a leafref of ../../name).
    "port-groups": [
        {"name": "inputs", "direction": "INPUT-ONLY"},
        {"name": "outputs", "direction": "OUTPUT-ONLY"},
    ],
}

Leaves = dict[Elements, Any]


class Refusal(Exception):
    """A call is refused: gRPC's code, and why as text."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class GnmiServer(gnmi_grpc.gNMIServicer):
    """Serves one emulated OCS; to the control socket as a TL1 `Server` is."""

    name = "OCP model by gNMI"

    def __init__(self, engine: Engine, credentials: Any = None) -> None:
        """`credentials`: gRPC's, for TLS; None: plain."""
        self.engine = engine
        self._credentials = credentials
        self.commands: deque[LogEntry] = deque(maxlen=COMMANDS_MAX)
        self.port = 0
        self._host = ""
        self._server: Any = None
        self._restarting: asyncio.Task[None] | None = None
        self._streams: dict[asyncio.Task[Any], asyncio.Event] = {}
        self._numbers: dict[str, int] = {}
        self._next = itertools.count(1)
        self._names: dict[Pair, str] = {}
        self._elected = 0
        self._updated: dict[Pair, tuple[str, int]] = {}
        self._stop_watching = engine.watch(self._moved)

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        server = grpc.aio.server(
            maximum_concurrent_rpcs=CALLS_MOST,
            options=(
                ("grpc.max_receive_message_length", ocp.MAX_MESSAGE_BYTES),
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
                ("grpc.http2.min_ping_interval_without_data_ms", 1000),
            ),
        )
        gnmi_grpc.add_gNMIServicer_to_server(self, server)
        try:
            where, secured = f"{host}:{port}", self._credentials
            self.port = server.add_secure_port(where, secured) if secured else server.add_insecure_port(where)
        except RuntimeError as error:
            raise OSError(str(error)) from None
        if not self.port:
            raise OSError("address in use, or not of this machine")
        await server.start()
        self._server, self._host = server, host

    async def close(self) -> None:
        self._stop_watching()
        if self._restarting is not None:
            await self._restarting
        if self._server is not None:
            await self._server.stop(None)

    def drop_sessions(self) -> int:
        """Cut every connection, as a crash of the controller card would; returns how many streams there were."""
        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.create_task(self._restart())
        return len(self._streams)

    async def _restart(self) -> None:
        await self._server.stop(None)
        await self.start(self._host, self.port)

    def logged_in(self) -> int:
        return len(self._streams)

    # Calls.

    async def Capabilities(self, request: Any, context: Any) -> Any:
        return await self._serve(context, "Capabilities", self._capabilities)

    async def Get(self, request: Any, context: Any) -> Any:
        shown = "Get " + " ".join(_shown(one) for one in request.path)
        return await self._serve(context, shown, lambda: self._get(request))

    async def Set(self, request: Any, context: Any) -> Any:
        return await self._serve(context, _shown_set(request), lambda: self._set(request))

    async def Subscribe(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        entry = self._note(context, "Subscribe")
        task = asyncio.current_task()
        assert task is not None
        try:
            self._admit(context)
            async for answer in self._subscribe(requests, task):
                yield answer
            entry.verdict, entry.answered_ns = "done", self.engine.now()
        except (Refusal, ModelError) as refusal:
            await self._refuse(context, entry, refusal)
        except asyncio.CancelledError:
            entry.verdict, entry.answered_ns = "lost", self.engine.now()
            raise
        finally:
            self._streams.pop(task, None)

    async def _serve(self, context: Any, shown: str, answer: Callable[[], Any]) -> Any:
        entry = self._note(context, shown)
        try:
            self._admit(context)
            EFFECTS.set(entry.effects)
            made = answer()
            entry.verdict, entry.answered_ns = "done", self.engine.now()
            return made
        except (Refusal, ModelError) as refusal:
            await self._refuse(context, entry, refusal)
        except asyncio.CancelledError:
            entry.verdict, entry.answered_ns = "lost", self.engine.now()
            raise

    async def _refuse(self, context: Any, entry: LogEntry, refusal: Exception) -> None:
        code = refusal.code if isinstance(refusal, Refusal) else grpc.StatusCode.INVALID_ARGUMENT
        entry.verdict, entry.answered_ns = "refused", self.engine.now()
        entry.error = f"{code.name}: {refusal}"[:COMMAND_CHARACTERS]
        await context.abort(code, str(refusal))

    def _note(self, context: Any, shown: str) -> LogEntry:
        peer = context.peer()
        if peer not in self._numbers:
            if len(self._numbers) >= COMMANDS_MAX:
                self._numbers.pop(next(iter(self._numbers)))
            self._numbers[peer] = next(self._next)
        entry = LogEntry(self.engine.now(), self._numbers[peer], peer, shown[:COMMAND_CHARACTERS])
        self.commands.append(entry)
        return entry

    def _admit(self, context: Any) -> None:
        """Raises Refusal unless the call comes with user and password (gNMI authentication, 2)."""
        given = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        ocs = self.engine.ocs
        user_ok = hmac.compare_digest(given.get("username", "").encode(), ocs.user.encode())
        if not (user_ok and hmac.compare_digest(given.get("password", "").encode(), secrets.password(ocs).encode())):
            raise Refusal(grpc.StatusCode.UNAUTHENTICATED, "user or password is wrong")

    def _capabilities(self) -> Any:
        answer = gnmi.CapabilityResponse(supported_encodings=[gnmi.JSON_IETF, gnmi.JSON], gNMI_version="0.8.0")
        for name, organization, version in ocp.MODELS:
            answer.supported_models.add(name=name, organization=organization, version=version)
        return answer

    # Get.

    def _get(self, request: Any) -> Any:
        _check_encoding(request.encoding)
        prefix = ocp.elements_of(request.prefix)
        paths = [(*prefix, *ocp.elements_of(one)) for one in request.path] or [prefix]
        tree = self.tree(paths)
        answer = gnmi.GetResponse()
        for elements, one in zip(paths, request.path or [gnmi.Path()], strict=True):
            value = _find(tree, elements)
            if value is None:
                raise Refusal(grpc.StatusCode.NOT_FOUND, f"there is no {ocp.text(elements)}")
            where = gnmi.Path(elem=[*request.prefix.elem, *one.elem])
            update = gnmi.Update(path=where, val=ocp.json_value(value))
            answer.notification.add(timestamp=time.time_ns(), update=[update])
        return answer

    def tree(self, paths: Sequence[Elements] = ((),)) -> dict[str, Any]:
        """What is at these paths and beside them, as RFC 7951 has it: only the containers, and of the ports only those,
        that one of them may mean. A switch of 4,096 ports is not told whole for one connection."""
        found = self.engine.cross_connects()
        tree: dict[str, Any] = {}
        tops = {path[0] if path else "*" for path in paths}
        if tops & {"*", "connections"}:
            tree[f"{ocp.CONNECTIONS}:connections"] = {"port-connection": self._rows(found)}
        if tops & {"*", "components"}:
            wanted = {path[2] if path[:2] == COMPONENT and len(path) > 2 else "*" for path in paths if _may_be(path)}
            tree["openconfig-platform:components"] = {"component": self._components(found, wanted)}
        if tops & {"*", "optical-switch"}:
            tree[f"{ocp.SWITCH}:optical-switch"] = {"config": SETTINGS, "state": STATE}
        return tree

    def _rows(self, found: Iterable[Any]) -> list[dict[str, Any]]:
        rows = []
        updated: dict[Pair, tuple[str, int]] = {}
        for one in found:
            status = ocp.STATUS_OF.get(one.state, "PENDING_CONNECTION")
            since = self._updated.get(one.pair)
            if since is None or since[0] != status:
                since = (status, time.time_ns())
            updated[one.pair] = since
            name = self._names.get(one.pair, ocp.connection_name(one.pair))
            config = {
                "name": name,
                "input-port-name": f"in-{one.pair.input}",
                "output-port-name": f"out-{one.pair.output}",
            }
            state = {
                **config,
                "status": status,
                **({"status-reason": one.cause} if one.cause else {}),
                "last-updated": datetime.fromtimestamp(since[1] / 1e9, UTC).isoformat(timespec="milliseconds"),
            }
            rows.append({"name": name, "config": config, "state": state})
        self._updated = updated
        return rows

    def _components(self, found: Sequence[Any], wanted: set[str]) -> list[dict[str, Any]]:
        """The ports of these names, * = all."""
        moving, powers = self._ports(found), self.engine.powers()
        components = []
        for (group, prefix, leaf), power in zip(SIDES, powers, strict=True):
            for port in range(1, self.engine.ocs.ports + 1):
                name = f"{prefix}-{port}"
                if "*" not in wanted and name not in wanted:
                    continue
                state = {"enabled": True, "group": group, "index": port, **moving.get(name, {"status": "BLOCKED"})}
                if power[port] is not None:
                    state[leaf] = f"{power[port]:.2f}"
                port_of = {"config": {"enabled": True}, "state": state}
                one = {"name": name, "config": {"name": name}, "state": {"name": name}}
                components.append({**one, f"{ocp.PORTS}:ocp-ocs-port": port_of})
        return components

    def _ports(self, found: Iterable[Any]) -> dict[str, dict[str, Any]]:
        """The states of ports in use; all others are BLOCKED."""
        status = {CrossConnectState.STEADY: "TUNED", CrossConnectState.FAULT: "FAILED"}
        ports: dict[str, dict[str, Any]] = {}
        for one in found:
            names, now = (f"in-{one.pair.input}", f"out-{one.pair.output}"), status.get(one.state, "TUNING")
            for own, peer in (names, names[::-1]):
                ports[own] = {"status": now, "connection": {"peer": peer, "connected": now == "TUNED"}}
        return ports

    # Set.

    def _set(self, request: Any) -> Any:
        self._arbitrate(request)
        prefix = ocp.elements_of(request.prefix)
        there = {one.pair for one in self.engine.cross_connects()}
        self._names = {pair: name for pair, name in self._names.items() if pair in there}
        before = {self._names.get(pair, ocp.connection_name(pair)): pair for pair in there}
        after: dict[str, Pair | None] = dict(before)
        answer = gnmi.SetResponse(timestamp=time.time_ns())
        for one in request.delete:
            self._delete(after, (*prefix, *ocp.elements_of(one)))
            answer.response.add(path=one, op=gnmi.UpdateResult.DELETE)
        wanted: dict[str, dict[str, str]] = {}
        for update in request.replace:
            elements = (*prefix, *ocp.elements_of(update.path))
            if len(elements) <= 2:
                self._delete(after, ("connections",))
            self._want(wanted, update, prefix)
            answer.response.add(path=update.path, op=gnmi.UpdateResult.REPLACE)
        for update in request.update:
            self._want(wanted, update, prefix)
            answer.response.add(path=update.path, op=gnmi.UpdateResult.UPDATE)
        for name, config in wanted.items():
            after[name] = self._pair(name, config, after.get(name))
        kept = {name: pair for name, pair in after.items() if pair is not None}
        _check_ports(kept)
        self._apply(before, kept)
        return answer

    def _arbitrate(self, request: Any) -> None:
        """gNMI master arbitration: the highest election id seen is the one that may change something."""
        for extension in request.extension:
            if extension.HasField("master_arbitration"):
                given = extension.master_arbitration.election_id
                number = given.high << 64 | given.low
                if number < self._elected:
                    raise Refusal(
                        grpc.StatusCode.PERMISSION_DENIED, f"election id {number}: {self._elected} is the master's"
                    )
                self._elected = number

    def _delete(self, after: dict[str, Pair | None], elements: Elements) -> None:
        if elements in ((), ("connections",), ("connections", "port-connection")):
            after.clear()
        elif elements[:2] == ("connections", "port-connection") and len(elements) == 3:
            after.pop(elements[2], None)  # what is not there may be deleted (gNMI 3.4.6)
        else:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{ocp.text(elements)} cannot be deleted; connections can")

    def _want(self, wanted: dict[str, dict[str, str]], update: Any, prefix: Elements) -> None:
        for elements, value in ocp.update_leaves(update, prefix):
            if elements[:2] != ("connections", "port-connection") or len(elements) < 4:
                raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{ocp.text(elements)} is not to be set")
            name, rest = elements[2], elements[3:]
            if rest == ("name",) or (len(rest) == 2 and rest[0] == "config"):
                config = wanted.setdefault(name, {})
                if not isinstance(value, str):
                    raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{ocp.text(elements)} is text")
                config[rest[-1]] = value
            else:
                raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{ocp.text(elements)} is not to be set")

    def _pair(self, name: str, config: dict[str, str], old: Pair | None) -> Pair:
        if config.get("name", name) != name:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{config['name']!r} under the key {name!r}")
        unknown = sorted(set(config) - {"name", "input-port-name", "output-port-name"})
        if unknown:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"a connection has no {', '.join(unknown)}")
        numbers = []
        for side, prefix, number in (
            ("input", "in-", old.input if old else 0),
            ("output", "out-", old.output if old else 0),
        ):
            given = config.get(f"{side}-port-name", f"{prefix}{number}" if number else "")
            digits = given.removeprefix(prefix)
            known = given.startswith(prefix) and digits.isascii() and digits.isdigit() and len(digits) < 6
            if not known or not 1 <= int(digits) <= self.engine.ocs.ports or digits[0] == "0":
                most = f"{prefix}1 to {prefix}{self.engine.ocs.ports}"
                raise Refusal(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"connection {name}: {given or 'nothing'!r} is no {side}: {most} are",
                )
            numbers.append(int(digits))
        return Pair(*numbers)

    def _apply(self, before: dict[str, Pair], after: dict[str, Pair]) -> None:
        gone = [pair for name, pair in before.items() if after.get(name) != pair]
        failed = {one.pair for one in self.engine.cross_connects() if one.state is CrossConnectState.FAULT}
        new = {pair: name for name, pair in after.items() if before.get(name) != pair}
        new |= {pair: name for name, pair in after.items() if pair in failed and pair in gone}
        if gone:
            self.engine.disconnect(gone)
        for pair in gone:
            self._names.pop(pair, None)
        self._names |= new
        bad = [one for one in self.engine.connect(list(new)) if one.state is CrossConnectState.INVALID]
        if bad:
            refused = {one.pair for one in bad}
            self.engine.disconnect([pair for pair in new if pair not in refused])
            for pair in new:
                self._names.pop(pair, None)
            self.engine.connect(gone)
            self._names |= {pair: name for name, pair in before.items() if pair in gone}
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, "; ".join(one.cause for one in bad[:8]))

    # Subscribe.

    def _moved(self) -> None:
        for event in self._streams.values():
            event.set()

    async def _subscribe(self, requests: AsyncIterator[Any], task: asyncio.Task[Any]) -> AsyncIterator[Any]:
        iterator = requests.__aiter__()
        try:
            first = await iterator.__anext__()
        except StopAsyncIteration:
            return
        wanted = first.subscribe
        if not first.HasField("subscribe") or not wanted.subscription:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "the first message says what is subscribed to")
        _check_encoding(wanted.encoding)
        if len(self._streams) >= MAX_SESSIONS:
            raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, f"all {MAX_SESSIONS} subscriptions are in use")
        prefix = ocp.elements_of(wanted.prefix)
        paths = [(*prefix, *ocp.elements_of(one.path)) for one in wanted.subscription]
        event = self._streams[task] = asyncio.Event()
        told = self._leaves(paths)
        if not wanted.updates_only:
            yield _notification(told, ())
        yield gnmi.SubscribeResponse(sync_response=True)
        if wanted.mode == gnmi.SubscriptionList.ONCE:
            return
        if wanted.mode == gnmi.SubscriptionList.POLL:
            async for request in iterator:
                if not request.HasField("poll"):
                    raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "only polls may follow")
                yield _notification(self._leaves(paths), ())
                yield gnmi.SubscribeResponse(sync_response=True)
            return
        sampled = [one.sample_interval / 1e9 for one in wanted.subscription if one.mode == gnmi.SAMPLE]
        interval = max(SAMPLE_LEAST_S, min(sampled)) if sampled else None
        while True:
            try:
                async with asyncio.timeout(interval):
                    await event.wait()
            except TimeoutError:
                yield _notification(self._leaves(paths), ())
                continue
            await asyncio.sleep(GATHER_S)
            event.clear()
            now = self._leaves(paths)
            news = {
                elements: value
                for elements, value in now.items()
                if told.get(elements) != value and not _is_power(elements)
            }
            if news:  # powers come with what changed, not by themselves
                moved = {elements[2] for elements in news}
                news |= {
                    elements: value for elements, value in now.items() if _is_power(elements) and elements[2] in moved
                }
            gone = sorted({_entry(elements) for elements in told if elements not in now})
            told = now
            if news or gone:
                yield _notification(news, gone)

    def _leaves(self, paths: Iterable[Elements]) -> Leaves:
        chosen = list(paths)
        every = dict(ocp.leaves((), self.tree(chosen)))
        return {elements: value for elements, value in every.items() if any(_matches(elements, one) for one in chosen)}


def _check_encoding(encoding: int) -> None:
    if encoding not in (gnmi.JSON, gnmi.JSON_IETF):
        raise Refusal(grpc.StatusCode.UNIMPLEMENTED, "values are told in JSON_IETF (or JSON)")


def _check_ports(wanted: dict[str, Pair]) -> None:
    """Raises Refusal where two connections want one port."""
    inputs: dict[int, Pair] = {}
    outputs: dict[int, Pair] = {}
    for pair in wanted.values():
        if (other := inputs.setdefault(pair.input, pair)) is not pair:
            text = f"input {pair.input} is in use: it goes to output {other.output}"
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, text)
        if (other := outputs.setdefault(pair.output, pair)) is not pair:
            text = f"output {pair.output} is in use: input {other.input} goes to it"
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, text)


def _find(tree: Any, elements: Elements) -> Any:
    """The subtree at a path; of a list without a key, or with *, all its entries."""
    at = tree
    for number, word in enumerate(elements):
        if isinstance(at, list):
            if word == "*":
                rest = [(entry, _find(entry, elements[number + 1 :])) for entry in at]
                return [inner for _, inner in rest if inner is not None]
            at = next((entry for entry in at if entry.get("name") == word), None)
        elif isinstance(at, dict):
            at = next((value for key, value in at.items() if ocp.plain(key) == word), None)
        else:
            return None
    return at


def _may_be(path: Elements) -> bool:
    """Whether it may mean a port."""
    return not path or path[0] in ("*", "components")


def _matches(elements: Elements, wanted: Elements) -> bool:
    return len(elements) >= len(wanted) and all(
        want in ("*", word) for word, want in zip(elements, wanted, strict=False)
    )


def _is_power(elements: Elements) -> bool:
    return elements[-1].endswith("-optical-power")


def _entry(elements: Elements) -> Elements:
    """What is deleted when a leaf is gone: its connection, or the leaf."""
    return elements[:3] if elements[:2] == ("connections", "port-connection") and len(elements) > 3 else elements


LISTS = ("port-connection", "component", "port-groups", "connection-groups")


def _path(elements: Elements) -> Any:
    """Text as a gNMI path again."""
    made = gnmi.Path()
    inner: Iterator[str] = iter(elements)
    for word in inner:
        elem = made.elem.add(name=word)
        if word in LISTS and (key := next(inner, None)) is not None:
            elem.key["peer-name" if word == "connection-groups" else "name"] = key
    return made


def _notification(news: Leaves, gone: Iterable[Elements]) -> Any:
    answer = gnmi.SubscribeResponse()
    answer.update.timestamp = time.time_ns()
    for elements, value in news.items():
        answer.update.update.add(path=_path(elements), val=ocp.json_value(value))
    answer.update.delete.extend(_path(elements) for elements in gone)
    return answer


def _shown(path: Any) -> str:
    try:
        return ocp.text(ocp.elements_of(path))
    except ModelError:
        return "?"


def _shown_set(request: Any) -> str:
    """A Set in short, for the log."""
    parts = [f"-{_shown(one)}" for one in itertools.islice(request.delete, 8)]
    for update in itertools.islice(itertools.chain(request.replace, request.update), 8):
        try:
            parts.append(f"+{_shown(update.path)} {json.dumps(ocp.value_of(update.val))}")
        except ModelError:
            parts.append(f"+{_shown(update.path)} ?")
    return " ".join(["Set", *parts])
