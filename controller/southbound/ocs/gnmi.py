"""An optical circuit switch by gNMI, with the Open Compute Project's model (ocp.py), behind `api.CircuitSwitch`.

One stream tells all changes of the connection table; all cross-connects of a call are one Set, which the switch takes
or refuses whole. A Set that it refuses is asked for again without those whose ports are taken, so that one wrong pair
costs no other. Ports are found by what the switch says of its components: index n of its input ports is input n; where
it has one kind of ports for both, outputs follow the inputs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import grpc
from finsy.proto import gnmi, gnmi_ext, gnmi_grpc
from rostrum.controller.certificates import Trust
from rostrum.controller.core.model import CrossConnect, CrossConnectState, Pair, SouthboundError
from rostrum.controller.runtime.run_clock import CLOCK, Within
from rostrum.controller.southbound.api import OnCrossConnect, OnOcsDown, OnOcsUp
from rostrum.controller.southbound.ocs import ocp
from rostrum.controller.southbound.ocs.device import Device
from rostrum.controller.southbound.ocs.dialect import SETTLED, settle_s
from rostrum.controller.southbound.ocs.ocp import Elements, ModelError
from rostrum.controller.southbound.tls import TlsWay
from rostrum.topologies import secrets
from rostrum.topologies.model import Ocs

log = logging.getLogger(__name__)

ANSWER_S = 3.0
SYNC_S = 10.0  # until the whole table has come
KEEPALIVE_MS = 5000
ENTRY = ("connections", "port-connection")
REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.OUT_OF_RANGE,
)


class Refused(SouthboundError):
    """The switch took nothing of a Set; the text is its own."""


class Table:
    """The switch's connections, by name, as its stream tells them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows: dict[str, dict[str, str]] = {}

    def take(self, notification: Any) -> set[str]:
        """Returns the names of the connections that changed. Raises ModelError."""
        prefix = ocp.elements_of(notification.prefix)
        changed: set[str] = set()
        for one in notification.delete:
            changed |= self._drop((*prefix, *ocp.elements_of(one)))
        for update in notification.update:
            for elements, value in ocp.update_leaves(update, prefix):
                if elements[:2] == ENTRY and len(elements) == 5 and elements[3] == "state":
                    self.rows.setdefault(elements[2], {})[elements[4]] = str(value)[: ocp.MAX_ELEMENT]
                    changed.add(elements[2])
            if len(self.rows) > self._most:
                raise ModelError(f"more than {self._most} connections")
        return changed

    def _drop(self, elements: Elements) -> set[str]:
        if elements == ENTRY[: len(elements)]:
            gone = set(self.rows)
            self.rows.clear()
        elif elements[:2] == ENTRY and len(elements) in (3, 4) and (len(elements) == 3 or elements[3] == "state"):
            gone = {elements[2]} & set(self.rows)
            self.rows.pop(elements[2], None)
        else:
            return set()
        return gone


class Ports:
    """Which component is which port."""

    def __init__(self, count: int, components: dict[str, dict[str, Any]], directions: dict[str, str]) -> None:
        self.inputs: dict[int, str] = {}
        self.outputs: dict[int, str] = {}
        both: dict[int, str] = {}
        for name, state in components.items():
            index = state.get("index")
            if not isinstance(index, int) or index < 1:
                continue
            direction = directions.get(str(state.get("group", "")), "ANY")
            {"INPUT-ONLY": self.inputs, "OUTPUT-ONLY": self.outputs}.get(direction, both)[index] = name
        for index, name in both.items():
            if index <= count:
                self.inputs.setdefault(index, name)
            else:
                self.outputs.setdefault(index - count, name)
        if both and len(both) <= count:  # one port is one pair of fibres
            self.outputs |= {index: name for index, name in both.items() if index not in self.outputs}
        self._input_of = {name: number for number, name in self.inputs.items()}
        self._output_of = {name: number for number, name in self.outputs.items()}

    def pair(self, row: dict[str, str]) -> Pair | None:
        source = self._input_of.get(row.get("input-port-name", ""))
        target = self._output_of.get(row.get("output-port-name", ""))
        return Pair(source, target) if source and target else None


class GnmiDriver(Device):
    """One OCS. `term` is the election id: of several managers, the highest is listened to (gNMI's master arbitration),
    and the others' orders are refused by the switch itself. 0 = not told."""

    def __init__(
        self,
        ocs: Ocs,
        on_up: OnOcsUp,
        on_down: OnOcsDown,
        on_change: OnCrossConnect | None = None,
        may_order: Callable[[], bool] | None = None,
        term: int = 0,
        tls: Trust | None = None,
    ) -> None:
        """`tls`: what it shows and trusts; None: plain. Raises SecretError."""
        super().__init__(ocs, on_up, on_down, on_change)
        self._tls = tls
        self._may_order, self._term = may_order, term
        self._metadata = (("username", ocs.user), ("password", secrets.password(ocs)))
        self._settle_s = settle_s(ocs)
        self._stub: Any = None
        self._ports = Ports(0, {}, {})
        self._table = Table(4 * ocs.ports)
        self._moved = asyncio.Event()  # the table changed

    # As api.CircuitSwitch says.

    async def connect(self, pairs: Sequence[Pair]) -> list[CrossConnect]:
        pairs = self.checked(pairs)
        self.check_up()
        self._connecting.update(pairs)
        try:
            return await self._connect(pairs) if pairs else []
        finally:
            self._connecting.difference_update(pairs)

    async def disconnect(self, pairs: Sequence[Pair]) -> None:
        pairs = self.checked(pairs)
        self.check_up()
        await self._refresh()
        names = [name for name, pair, _ in self._listed() if pair in set(pairs)]
        if not names:
            return
        why = ""
        try:
            await self._set(deletes=names)
        except Refused as refused:
            why = str(refused)
        deadline = CLOCK.s() + self._settle_s
        while stayed := [name for name in names if name in self._table.rows]:
            if why or not await self._change(deadline):
                raise SouthboundError(
                    f"{self.ocs.name}: cross-connects {', '.join(stayed)} stayed: {why or 'no reason'}"
                )

    async def read(self) -> list[CrossConnect]:
        self.check_up()
        await self._refresh()
        return await self._with_powers([self._judge(pair, row) for _, pair, row in self._listed()])

    # The table.

    def _listed(self) -> list[tuple[str, Pair, dict[str, str]]]:
        """The rows whose ports are this switch's."""
        found = [(name, self._ports.pair(row), row) for name, row in self._table.rows.items()]
        for name, pair, row in found:
            if pair is None and "input-port-name" in row and "output-port-name" in row:
                self.not_possible(f"{row['input-port-name']}->{row['output-port-name']} ({name})")
        return [(name, pair, row) for name, pair, row in found if pair is not None]

    def _judge(self, pair: Pair, row: dict[str, str]) -> CrossConnect:
        state = ocp.STATUS.get(row.get("status", ""), CrossConnectState.TRANSITION)
        return CrossConnect(pair, state, cause=row.get("status-reason", ""))

    async def _connect(self, pairs: Sequence[Pair]) -> list[CrossConnect]:
        await self._refresh()
        there = {pair: (name, self._judge(pair, row)) for name, pair, row in self._listed()}
        again = (CrossConnectState.FAULT, CrossConnectState.INVALID)
        missing = [pair for pair in pairs if pair not in there or there[pair][1].state in again]
        stale = [there[pair][0] for pair in missing if pair in there]
        results = await self._order(missing, stale)
        deadline = CLOCK.s() + self._settle_s
        while True:
            now = {pair: self._judge(pair, row) for _, pair, row in self._listed()}
            results |= {p: now[p] for p in pairs if p not in results and p in now and now[p].state in SETTLED}
            if len(results) == len(pairs) or not await self._change(deadline):
                break
        for pair in (one for one in pairs if one not in results):
            if pair in now:
                cause = f"the switch says {ocp.STATUS_OF.get(now[pair].state, '?')} after {self._settle_s:.3g} s"
                results[pair] = CrossConnect(pair, CrossConnectState.FAULT, cause=cause)
            else:
                results[pair] = CrossConnect(pair, CrossConnectState.INVALID, cause="the switch does not list it")
        return await self._with_powers([results[pair] for pair in pairs])

    async def _order(self, pairs: Sequence[Pair], stale: Sequence[str]) -> dict[Pair, CrossConnect]:
        """Has the switch make these; returns those that it will not."""
        if not pairs:
            return {}
        refused: dict[Pair, CrossConnect] = {}
        try:
            await self._set(pairs, stale)
            return refused
        except Refused as error:
            why = str(error)
        await self._refresh()
        # Whatever the reason: those whose ports are taken are told, and the others asked for again, at last alone.
        taken = self._taken(pairs, stale)
        refused |= {p: CrossConnect(p, CrossConnectState.INVALID, cause=cause) for p, cause in taken.items()}
        there = {pair for _, pair, row in self._listed() if row.get("status") not in ("FAILED", "INVALID")}
        rest = [pair for pair in pairs if pair not in refused and pair not in there]
        if refused and rest:
            try:
                await self._set(rest, stale)
                return refused
            except Refused as error:
                why = str(error)
        for pair in rest:
            try:
                if len(pairs) > 1:
                    await self._set([pair], [name for name in stale if name == ocp.connection_name(pair)])
                    continue
            except Refused as error:
                why = str(error)
            refused[pair] = CrossConnect(pair, CrossConnectState.INVALID, cause=why)
        return refused

    def _taken(self, pairs: Iterable[Pair], stale: Sequence[str]) -> dict[Pair, str]:
        rows = [pair for name, pair, _ in self._listed() if name not in stale]
        taken = {}
        for pair in pairs:
            for other in rows:
                if other.input == pair.input and other != pair:
                    taken[pair] = f"input {pair.input} is in use: it goes to output {other.output}"
                elif other.output == pair.output and other != pair:
                    taken[pair] = f"output {pair.output} is in use: input {other.input} goes to it"
        return taken

    async def _with_powers(self, found: list[CrossConnect]) -> list[CrossConnect]:
        names = {self._ports.inputs[one.pair.input] for one in found if one.pair.input in self._ports.inputs}
        names |= {self._ports.outputs[one.pair.output] for one in found if one.pair.output in self._ports.outputs}
        if not names:
            return found
        paths = [ocp.path("components", ("component", name), "ocp-ocs-port", "state") for name in sorted(names)]
        powers: dict[tuple[str, str], float | None] = {}
        for elements, value in await self._get(paths):
            if len(elements) == 6 and elements[5] in ("input-optical-power", "output-optical-power"):
                powers[elements[2], elements[5]] = ocp.dbm(value)
        return [
            CrossConnect(
                one.pair,
                one.state,
                powers.get((self._ports.inputs.get(one.pair.input, ""), "input-optical-power")),
                powers.get((self._ports.outputs.get(one.pair.output, ""), "output-optical-power")),
                one.cause,
            )
            for one in found
        ]

    # Over the wire.

    async def _set(self, pairs: Iterable[Pair] = (), deletes: Iterable[str] = ()) -> None:
        """One Set. Raises Refused, or SouthboundError when nothing can be known."""
        request = gnmi.SetRequest()
        for name in deletes:
            request.delete.append(ocp.path("connections", ("port-connection", name)))
        for pair in pairs:
            name = ocp.connection_name(pair)
            try:
                config = {
                    "name": name,
                    "input-port-name": self._ports.inputs[pair.input],
                    "output-port-name": self._ports.outputs[pair.output],
                }
            except KeyError:
                raise SouthboundError(
                    f"{self.ocs.name} names {len(self._ports.inputs)} inputs and {len(self._ports.outputs)} outputs by "
                    f"index, {pair.input}->{pair.output} is not among them"
                ) from None
            where = ocp.path("connections", ("port-connection", name), "config")
            request.update.append(gnmi.Update(path=where, val=ocp.json_value(config)))
        if self._term:
            arbitration = gnmi_ext.MasterArbitration(
                role=gnmi_ext.Role(id=""),
                election_id=gnmi_ext.Uint128(high=self._term >> 64, low=self._term & (1 << 64) - 1),
            )
            request.extension.add().master_arbitration.CopyFrom(arbitration)
        if self._may_order is not None and not self._may_order():
            raise SouthboundError(f"{self.ocs.name}: Set not sent: this manager may lead no more")
        await self._call("Set", request)

    async def _get(self, paths: Iterable[Any]) -> list[tuple[Elements, Any]]:
        request = gnmi.GetRequest(path=list(paths), encoding=gnmi.JSON_IETF)
        answer = await self._call("Get", request)
        try:
            return [
                leaf
                for notification in answer.notification
                for update in notification.update
                for leaf in ocp.update_leaves(update, ocp.elements_of(notification.prefix))
            ]
        except ModelError as error:
            raise SouthboundError(f"{self.ocs.name} sent something that is not of its model: {error}") from None

    async def _call(self, verb: str, request: Any) -> Any:
        if self._stub is None:
            self.check_up()
        try:
            return await getattr(self._stub, verb)(request, timeout=ANSWER_S, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            text = error.details() or error.code().name
            if verb == "Set" and error.code() in REFUSALS:
                raise Refused(text) from None
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise SouthboundError(f"{self.ocs.name} did not answer {verb} within {ANSWER_S:.3g} s") from None
            raise SouthboundError(f"{self.ocs.name}: {verb}: {text}") from None
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise SouthboundError(f"{self.ocs.name}: connection lost, with {verb} unanswered") from None

    async def _refresh(self) -> None:
        """The table as it is now: the stream may be a moment behind."""
        fresh = Table(4 * self.ocs.ports)
        for elements, value in await self._get([ocp.path("connections")]):
            if elements[:2] == ENTRY and len(elements) == 5 and elements[3] == "state":
                fresh.rows.setdefault(elements[2], {})[elements[4]] = str(value)[: ocp.MAX_ELEMENT]
        self._table.rows = fresh.rows

    async def _change(self, deadline: float) -> bool:
        """Waits until the table changes; False at the deadline. Raises SouthboundError when the connection ends."""
        left, stub = deadline - CLOCK.s(), self._stub
        if left <= 0:
            return False
        self._moved.clear()
        try:
            async with Within(left):
                await self._moved.wait()
        except TimeoutError:
            return False
        if stub is None or self._stub is not stub:
            raise SouthboundError(f"{self.ocs.name}: connection lost, with cross-connects under way")
        return True

    # A connection's life.

    async def session(self) -> str:
        where = f"{self.ocs.address}:{self.ocs.management_port}"
        options = (
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.max_receive_message_length", ocp.MAX_MESSAGE_BYTES),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
        )
        ocs = self.ocs
        way = TlsWay(self._tls, ocs.name, str(ocs.address), ocs.management_port) if self._tls else None
        channel = grpc.aio.insecure_channel(await way.start() if way else where, options)
        try:
            self._stub = gnmi_grpc.gNMIStub(channel)
            await self._learn(where, way)
            return await self._follow()
        except grpc.aio.AioRpcError as error:
            raise SouthboundError(f"{self.ocs.name}: {error.details() or error.code().name}") from None
        except ModelError as error:
            raise SouthboundError(f"{self.ocs.name} sent something that is not of its model: {error}") from None
        finally:
            self._stub = None
            self._moved.set()
            await channel.close(None)
            if way:
                await way.close()

    async def _learn(self, where: str, way: TlsWay | None) -> None:
        """What the switch is: its models, its ports."""
        try:
            answer = await self._stub.Capabilities(gnmi.CapabilityRequest(), timeout=ANSWER_S, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                raise SouthboundError(f"{self.ocs.name} refused user {self.ocs.user}: {error.details()}") from None
            cause = (way.trouble if way else "") or error.details() or error.code().name
            raise SouthboundError(f"{self.ocs.name}: cannot connect to {where}: {cause}") from None
        models = {model.name for model in answer.supported_models}
        if ocp.CONNECTIONS not in models:
            raise SouthboundError(
                f"{self.ocs.name} speaks gNMI without the model {ocp.CONNECTIONS}: no OCS of this kind"
            )
        directions: dict[str, str] = {}
        components: dict[str, dict[str, Any]] = {}
        for text, value in await self._get([ocp.path("optical-switch", "state"), ocp.path("components")]):
            if text[:3] == ("optical-switch", "state", "port-groups") and text[4:] == ("direction",):
                directions[text[3]] = str(value)
            elif text[3:5] == ("ocp-ocs-port", "state") and text[5:] in (("index",), ("group",)):
                components.setdefault(text[2], {})[text[5]] = value
        self._ports = Ports(self.ocs.ports, components, directions)

    async def _follow(self) -> str:
        """Reads the stream until it ends; returns why."""
        request = gnmi.SubscribeRequest()
        request.subscribe.mode = gnmi.SubscriptionList.STREAM
        request.subscribe.encoding = gnmi.JSON_IETF
        request.subscribe.subscription.add(path=ocp.path("connections"), mode=gnmi.ON_CHANGE)
        self._table = Table(4 * self.ocs.ports)
        stream = self._stub.Subscribe(metadata=self._metadata)
        await stream.write(request)
        try:
            async with Within(SYNC_S):
                while not (answer := await stream.read()).sync_response:
                    self._take(answer)
        except TimeoutError:
            raise SouthboundError(f"{self.ocs.name} did not tell its connections within {SYNC_S:g} s") from None
        except AttributeError:  # the stream ended: grpc's EOF
            raise SouthboundError(f"{self.ocs.name} ended the stream of its connections") from None
        self.now_up()
        while (answer := await stream.read()) is not grpc.aio.EOF:
            self._take(answer)
        return "the switch closed the connection"

    def _take(self, answer: Any) -> None:
        before = {name: row.get("status") for name, row in self._table.rows.items()}
        changed = self._table.take(answer.update)
        self._moved.set()
        for name in changed & set(self._table.rows):
            row = self._table.rows[name]
            fails = row.get("status") == "FAILED" and before.get(name) != "FAILED"
            if self.up and fails and (pair := self._ports.pair(row)) is not None:
                self.changed_by_itself(self._judge(pair, row))
