"""Weights for many servers: published once, mapped by every process.

A version is an index and parts of some layers each, which are sent one after the other: subscribers have the first
layers while the last are on their way. Tensors are views of the agent's memory, one copy for all processes of a server.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from rostrum.client import Agent, Busy, NotFound, ReadObject, RostrumError, TimedOut
from rostrum.client.values import Code

import torch

from .backend import as_bytes

PART = 64 << 20  # bytes; a larger tensor is a part of its own
PARTS_MOST = 65_535
TENSORS_MOST = 1_000_000
VERSION_MOST = (1 << 24) - 1
ALIGNED = 64
WAIT_S = 60.0
POLL_S = 0.5
AHEAD = 2  # parts under way
DROP_S = 5.0
APP = uuid5(NAMESPACE_URL, "rostrum:weights")


def app_of(name: str, secret: str = "") -> UUID:
    """The application id of what is published by that name. Who knows it may read; `secret` makes it unknown."""
    return uuid5(APP, f"{secret}/{name}")


def _id(version: int, part: int) -> int:
    """Part 0 is the index."""
    return 1 << 40 | version << 16 | part


@dataclass
class Published:
    """What a publication came to. `failed`: receivers that have not all of it, and why; the others have."""

    version: int
    bytes: int
    took_s: float
    receivers: list[str]
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.failed


def _checked(version: int) -> int:
    if type(version) is not int or not 0 <= version <= VERSION_MOST:
        raise RostrumError(f"a version is a number from 0 to {VERSION_MOST}, not {version!r}", Code.INVALID)
    return version


def _plan(state: Mapping[str, torch.Tensor]) -> tuple[list[dict[str, Any]], list[int]]:
    """Where each tensor is, and the size of each part."""
    rows: list[dict[str, Any]] = []
    sizes: list[int] = []
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            raise RostrumError(f"{name} is a {type(tensor).__name__}, not a tensor: leave it out", Code.INVALID)
        size = tensor.numel() * tensor.element_size()
        if not sizes or (sizes[-1] and sizes[-1] + size > PART):
            sizes.append(0)
        at = -(-sizes[-1] // ALIGNED) * ALIGNED
        rows.append({"name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
                     "part": len(sizes), "at": at})  # fmt: skip
        sizes[-1] = at + size
    if not 1 <= len(sizes) <= PARTS_MOST or len(rows) > TENSORS_MOST:
        raise RostrumError(f"{len(rows)} tensors in {len(sizes)} parts are none, or too many", Code.INVALID)
    return rows, sizes


def publish(
    state: Mapping[str, torch.Tensor],
    version: int,
    receivers: Sequence[str],
    *,
    name: str = "weights",
    agent: Agent | None = None,
    secret: str = "",
    keep: int = 1,
    wait: float = WAIT_S,
) -> Published:
    """Puts a version of these tensors on servers, where processes `subscribe`.

    The tensors are copied once, into the agent's memory (from a GPU, too). A receiver that fails is named in the
    result; the others go on.

    Args:
        receivers: servers; this one has it anyway.
        agent: connected with the application id `app_of(name, secret)`; None: the one of this server.
        keep: versions that stay here, this one included.
        wait: seconds for a path.

    Raises:
        RostrumError: it could not be begun, that version is there, or no server has it.
    """
    _checked(version)
    rows, sizes = _plan(state)
    began = time.monotonic()
    with contextlib.ExitStack() as until:
        agent = agent or until.enter_context(Agent(app_id=app_of(name, secret), process=f"publish {name}"))
        to = [one for one in dict.fromkeys(receivers) if one != agent.server]
        _drop_old(agent, version, keep)
        result = Published(version, sum(sizes), 0.0, to)
        index = json.dumps({"version": version, "parts": sizes, "tensors": rows}).encode()
        waiting: list[Any] = []

        def end(least: int) -> None:
            while len(waiting) > least:
                sent = waiting.pop(0).wait()
                for one in sent.receivers:
                    if not one.digest_ok and one.name not in result.failed:
                        result.failed[one.name] = one.cause or one.state or sent.cause
                if not sent.receivers and not sent.ok:
                    raise RostrumError(sent.cause, Code.FAILED)

        def give(part: int, source: Any) -> None:
            left = [one for one in to if one not in result.failed]
            if to and not left:
                why = "; ".join(f"{one}: {text}" for one, text in result.failed.items())
                raise RostrumError(f"version {version} reached nobody: {why}", Code.FAILED)
            if left:
                waiting.append(agent.send(_id(version, part), left, wait=wait, source=source))
            else:
                agent.add(_id(version, part), source)

        give(0, index)
        by_part: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            by_part.setdefault(row["part"], []).append(row)
        for part, size in enumerate(sizes, 1):
            end(AHEAD - 1)
            with agent.create(size) as made:
                for row in by_part[part]:
                    content = as_bytes(state[row["name"]])
                    if content.numel():
                        made.write(content.numpy(), row["at"])
                give(part, made)
        end(0)
    result.took_s = time.monotonic() - began
    return result


def _versions(agent: Agent) -> dict[int, list[int]]:
    """Of this application, the data ids of each version that is here, in part or whole."""
    found: dict[int, list[int]] = {}
    for row in agent.status().objects:
        if row.app == agent.app_id and row.data_id >> 40 == 1:
            found.setdefault(row.data_id >> 16 & VERSION_MOST, []).append(row.data_id)
    return found


def _drop_old(agent: Agent, newest: int, keep: int) -> None:
    """Older versions than the newest `keep` go; who has them mapped keeps them."""
    found = _versions(agent)
    older = sorted(version for version in found if version < newest)
    for version in older[: len(older) - max(0, keep - 1)] if keep > 1 else older:
        for data_id in sorted(found[version]):  # the index first: nobody begins with it then
            until = time.monotonic() + DROP_S
            while True:
                try:
                    agent.delete(data_id)
                except Busy:
                    if time.monotonic() < until:
                        time.sleep(0.01)
                        continue
                except RostrumError:
                    pass
                break


class Weights:
    """A version as it comes. Tensors are for reading: who wants to change one, clones it."""

    def __init__(self, agent: Agent, version: int, index: ReadObject, wait: float) -> None:
        self._agent, self.version, self._wait = agent, version, wait
        self._rows, self._sizes = _parsed(index.bytes(), version)
        self.digests: dict[int, str] = {0: index.digest}  # of each part that came
        self._memory: dict[int, ReadObject] = {}

    @property
    def names(self) -> list[str]:
        return [row["name"] for row in self._rows]

    @property
    def bytes(self) -> int:
        return sum(self._sizes)

    @property
    def digest(self) -> str:
        """Of all parts' digests; of a version that came whole."""
        if len(self.digests) != len(self._sizes) + 1:
            raise RostrumError(f"version {self.version} has not all come", Code.BUSY)
        text = "\n".join(self.digests[part] for part in sorted(self.digests))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def _part(self, part: int) -> ReadObject:
        if part not in self._memory:
            data = self._agent.read(_id(self.version, part), wait=self._wait)
            if data.size != self._sizes[part - 1]:
                raise RostrumError(f"part {part} of version {self.version} has another size than told", Code.PROTOCOL)
            self._memory[part], self.digests[part] = data, data.digest
        return self._memory[part]

    def layers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors with their names, in the order of publication, each as soon as it is here.

        Raises:
            TimedOut: nothing more came in time.
        """
        for row in self._rows:
            yield row["name"], self._tensor(row)

    def _tensor(self, row: dict[str, Any]) -> torch.Tensor:
        dtype = getattr(torch, row["dtype"])
        count = math.prod(row["shape"])
        if not count:
            return torch.empty(row["shape"], dtype=dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of memory that is for reading
            flat = torch.frombuffer(self._part(row["part"]), dtype=dtype, count=count, offset=row["at"])
        return flat.view(row["shape"])

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All of it."""
        return dict(self.layers())


def _parsed(content: bytes, version: int) -> tuple[list[dict[str, Any]], list[int]]:
    """Rows and sizes of parts. Raises RostrumError: it is no index of that version."""
    bad = RostrumError("what came is no index of weights", Code.PROTOCOL)
    try:
        value = json.loads(content)
        rows, sizes = value["tensors"], value["parts"]
        if value["version"] != version or not 1 <= len(sizes) <= PARTS_MOST or len(rows) > TENSORS_MOST:
            raise bad
        if not all(type(size) is int and 0 <= size < 1 << 50 for size in sizes):
            raise bad
        for row in rows:
            dtype, shape, part, at = getattr(torch, str(row["dtype"]), None), row["shape"], row["part"], row["at"]
            if not isinstance(dtype, torch.dtype) or not isinstance(row["name"], str) or len(shape) > 64:
                raise bad
            if not all(type(number) is int and 0 <= number < 1 << 50 for number in (*shape, part, at)):
                raise bad
            width = torch.empty(0, dtype=dtype).element_size()
            if not 1 <= part <= len(sizes) or at % ALIGNED or at + math.prod(shape) * width > sizes[part - 1]:
                raise bad
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise bad from error
    return rows, sizes


class Subscription:
    """Versions that come to this server by a name."""

    def __init__(self, agent: Agent, name: str, keep: int, own: bool) -> None:
        self.agent, self.name, self.keep, self._own = agent, name, keep, own
        self.version = -1  # the newest that was taken

    def next(self, wait: float = WAIT_S, newest: bool = True) -> Weights:
        """The newest version above the last one taken (or the oldest such), as soon as its index is here.

        Older versions go then, but for `keep`.

        Raises:
            TimedOut: there is none in time.
        """
        until = time.monotonic() + wait
        while True:
            there = sorted(version for version, ids in _versions(self.agent).items()
                           if version > self.version and _id(version, 0) in ids)  # fmt: skip
            for version in reversed(there) if newest else there:
                with contextlib.suppress(NotFound, Busy, TimedOut):
                    return self.get(version, wait=POLL_S, each=wait)
            left = until - time.monotonic()
            if left <= 0:
                raise TimedOut(f"no version of {self.name} above {self.version} came within {wait:g} s")
            if self.version < VERSION_MOST:  # most often it is the next one: that wait ends at once
                with contextlib.suppress(NotFound, Busy, TimedOut):
                    return self.get(self.version + 1, wait=min(POLL_S, left), each=wait)

    def get(self, version: int, wait: float = WAIT_S, each: float = WAIT_S, holders: Sequence[str] = ()) -> Weights:
        """That version. `each`: seconds for each of its parts. `holders`: servers to get it from if it did not come.

        Raises:
            TimedOut: it did not come in time.
        """
        _checked(version)
        if holders:
            with self.agent.fetch(_id(version, 0), holders, wait=wait) as index:
                _, sizes = _parsed(index.bytes(), version)
            for part in range(1, len(sizes) + 1):
                self.agent.fetch(_id(version, part), holders, wait=each).close()
        with self.agent.read(_id(version, 0), wait=wait) as index:
            found = Weights(self.agent, version, index, each)
        self.version = max(self.version, version)
        _drop_old(self.agent, version, self.keep)
        return found

    def close(self) -> None:
        """Tensors stay valid."""
        if self._own:
            self.agent.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def subscribe(name: str = "weights", *, agent: Agent | None = None, secret: str = "", keep: int = 2) -> Subscription:
    """Versions that `publish` puts on this server by that name. `keep`: versions that stay here."""
    own = agent is None
    connected = agent or Agent(app_id=app_of(name, secret), process=f"subscribe {name}")
    return Subscription(connected, name, max(1, keep), own)
