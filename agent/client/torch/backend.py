"""The backend "rostrum" of torch.distributed: large broadcasts by multicast, everything else by Gloo.

Every rank talks to the agent of its server. The root's agent sends a tensor's bytes once to all servers of the group;
processes of one server read the same memory. A rank without an agent leaves the whole group to Gloo, and says why.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import os
import secrets
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from typing import Any

from rostrum.client import Agent, Busy, NotFound, RostrumError

import torch
import torch.distributed as dist

NAME = "rostrum"
LARGE_FROM = 1 << 20  # bytes; smaller tensors go by Gloo. $ROSTRUM_TORCH_LARGE_FROM, alike on all ranks
WAIT_S = 1800.0
DROP_S = 5.0
STOP_S = 5.0
_Work = getattr(dist, "Work", None) or dist._Work  # PyTorch 1.13
_BY_GLOO = ("allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "_allgather_base", "allreduce",
            "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "gather", "monitored_barrier", "recv",
            "recv_anysource", "reduce", "reduce_scatter", "reduce_scatter_tensor_coalesced", "_reduce_scatter_base",
            "scatter", "send")  # fmt: skip

_GLOO_TYPES = {torch.float32, torch.float64, torch.float16, torch.uint8, torch.int8, torch.int32, torch.int64}


def seconds(timeout: Any, otherwise: float) -> float:
    """Of a timedelta; none, or a negative one, is `otherwise`."""
    if isinstance(timeout, datetime.timedelta) and timeout.total_seconds() > 0:
        return timeout.total_seconds()
    return otherwise


class Transfer(_Work):  # type: ignore[misc, valid-type]
    """A broadcast under way."""

    def __init__(self, tensors: list[torch.Tensor], done: concurrent.futures.Future[Any]) -> None:
        super().__init__()
        self._tensors, self._done = tensors, done
        self._future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        done.add_done_callback(self._tell)

    def _tell(self, done: concurrent.futures.Future[Any]) -> None:
        error = concurrent.futures.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self._future.set_result(self._tensors)
        else:
            self._future.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Raises RuntimeError: it failed, or is not over in time."""
        try:
            self._done.result(seconds(timeout, 0) or None)
        except concurrent.futures.TimeoutError:
            if self._done.done():
                raise
            raise RuntimeError(f"rostrum: the broadcast is not over after {timeout}; it goes on") from None
        except concurrent.futures.CancelledError:
            raise RuntimeError("rostrum: the process group was shut down") from None
        return True

    def is_completed(self) -> bool:
        return self._done.done()

    def is_success(self) -> bool:
        return self._done.done() and not self._done.cancelled() and self._done.exception() is None

    def exception(self) -> Any:
        return self._done.exception() if self._done.done() and not self._done.cancelled() else None

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._tensors

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        return self._future


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes in the memory of this server: itself if it is there in one piece."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8)


class Group(dist.ProcessGroup):  # type: ignore[misc]
    """Ranks with an agent each. `store`: of this group alone."""

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self._number, self._ranks = rank, size
        self._wait_s = seconds(timeout, WAIT_S)
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
        self._store = dist.PrefixStore("rostrum", store)
        self._count = 0
        self._large_from = int(os.environ.get("ROSTRUM_TORCH_LARGE_FROM", LARGE_FROM))
        self._lock = threading.Lock()
        self._agent: Agent | None = None
        self.why_gloo = ""
        self._join()
        self._worker = concurrent.futures.ThreadPoolExecutor(1, f"rostrum-torch-{rank}")

    def _join(self) -> None:
        """Who is where; all ranks come to the same conclusion."""
        if self._number == 0:  # a group of a job that was restarted is another one
            self._store.set("app", secrets.token_hex(16))
        app = uuid.UUID(self._store.get("app").decode())
        here = ""
        try:
            self._agent = Agent(app_id=app, process=f"torch rank {self._number}")
            self._agent.ephemeral()  # what a killed rank leaves is freed
            here = f"{self._agent.server} {self._large_from}"
        except RostrumError as error:
            here = f"! {error}"
        self._store.set(f"at/{self._number}", here)
        places = [self._store.get(f"at/{rank}").decode() for rank in range(self._ranks)]
        lacking = [(rank, place[2:]) for rank, place in enumerate(places) if place.startswith("! ")]
        if lacking:
            self.why_gloo = f"rank {lacking[0][0]} has no agent: {lacking[0][1]}"
        elif len({place.partition(" ")[2] for place in places}) > 1:
            self.why_gloo = "ranks differ in ROSTRUM_TORCH_LARGE_FROM"
        if self.why_gloo:
            self._leave()
            if self._number == 0:
                warnings.warn(f"rostrum: this group goes by Gloo alone: {self.why_gloo}", RuntimeWarning, stacklevel=2)
        self._servers = [place.partition(" ")[0] for place in places]

    def _leave(self) -> None:
        if self._agent:
            self._agent.close()
            self._agent = None

    # -- what torch asks

    def getBackendName(self) -> str:
        return NAME

    _get_backend_name = getBackendName

    def rank(self) -> int:
        return self._number

    def size(self) -> int:
        return self._ranks

    def broadcast(self, tensors: Any, opts: Any = None, *more: Any) -> Any:
        """Of one tensor from opts.rootRank; by rostrum if it is large."""
        many = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
        root = int(getattr(opts, "rootRank", 0)) if not isinstance(opts, int) else opts
        size = sum(one.numel() * one.element_size() for one in many)
        if self._agent is None or len(many) != 1 or size < self._large_from or self._ranks == 1:
            return self._of_gloo(many, () if opts is None else (opts, *more))
        wait_s = seconds(getattr(opts, "timeout", None), self._wait_s)
        with self._lock:
            number, self._count = self._count, self._count + 1
        work = self._send if root == self._number else self._receive
        return Transfer(many, self._worker.submit(work, number, root, many[0], size, wait_s))

    def _of_gloo(self, many: list[torch.Tensor], more: tuple[Any, ...]) -> Any:
        """As bytes, where Gloo does not know the type: bfloat16 in PyTorch 1.13."""
        if all(one.dtype in _GLOO_TYPES or not one.is_contiguous() for one in many):
            return self._gloo.broadcast(many, *more)
        begun = self._gloo.broadcast([one.detach().flatten().view(torch.uint8) for one in many], *more)
        return Transfer(many, self._worker.submit(begun.wait))

    def shutdown(self) -> None:
        """What has not begun is given up."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        self._leave()

    abort = shutdown

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.shutdown()

    # -- in the group's thread

    def _local(self, root: int) -> list[int]:
        return [rank for rank, server in enumerate(self._servers) if server == self._servers[self._number]]

    def _object(self, number: int) -> str:
        return f"broadcast {number}"

    def _send(self, number: int, root: int, tensor: torch.Tensor, size: int, wait_s: float) -> None:
        assert self._agent
        others = sorted(set(self._servers) - {self._servers[root]})
        name = self._object(number)
        try:
            content = as_bytes(tensor).numpy()
            if not others:
                self._agent.add(name, content)
                self._gone(number)
                return
            result = self._agent.send(name, others, wait=min(wait_s, 60.0), source=content).wait(wait_s)
        except RostrumError as error:
            self._store.set(f"failed/{number}", str(error))
            raise RuntimeError(f"rostrum: broadcast {number} failed: {error}") from error
        failed = {one.name: one.cause or one.state for one in result.receivers if not one.digest_ok}
        if len(failed) == len(others):
            text = result.cause or "; ".join(f"{name}: {why}" for name, why in failed.items())
            self._store.set(f"failed/{number}", text)
            raise RuntimeError(f"rostrum: broadcast {number} reached nobody: {text}")
        for server, why in failed.items():
            self._store.set(f"failed/{number}/{server}", why)
            warnings.warn(f"rostrum: broadcast {number} did not reach {server}: {why}", RuntimeWarning, stacklevel=2)
        self._gone(number)

    def _receive(self, number: int, root: int, tensor: torch.Tensor, size: int, wait_s: float) -> None:
        assert self._agent
        name, until = self._object(number), time.monotonic() + wait_s
        here = f"failed/{number}/{self._servers[self._number]}"
        while True:
            try:
                data = self._agent.read(name, wait=max(0.0, min(1.0, until - time.monotonic())))
                break
            except (NotFound, Busy, RostrumError) as error:
                for key in (f"failed/{number}", here):
                    if self._told(key):
                        text = self._store.get(key).decode()
                        raise RuntimeError(f"rostrum: broadcast {number} of rank {root} failed: {text}") from error
                if self._agent.closed or time.monotonic() >= until:
                    text = f"rostrum: broadcast {number} of rank {root} did not come within {wait_s:g} s: {error}"
                    raise RuntimeError(text) from error
        with data:
            if data.size != size:
                text = f"rostrum: broadcast {number} of rank {root} has {data.size} bytes, and the tensor here {size}"
                raise RuntimeError(text)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the memory is for reading, and is only read
                came = torch.frombuffer(data, dtype=torch.uint8)
            if tensor.is_contiguous() and tensor.device.type == "cpu":
                tensor.detach().flatten().view(torch.uint8).copy_(came)
            else:
                tensor.detach().copy_(came.view(tensor.dtype).view(tensor.shape))
            del came
        self._gone(number)

    def _told(self, key: str) -> bool:
        """Whether somebody has set it; a store may not be asked without waiting otherwise."""
        check: Callable[[list[str]], bool] | None = getattr(self._store, "check", None)
        if check:
            with contextlib.suppress(Exception):
                return bool(check([key]))
        try:
            self._store.wait([key], datetime.timedelta(milliseconds=10))
        except Exception:
            return False
        return True

    def _gone(self, number: int) -> None:
        """This rank is done with an object: the last one of a server deletes it there."""
        assert self._agent
        local = self._local(number)
        if len(local) > 1 and self._store.add(f"done/{number}/{self._servers[self._number]}", 1) < len(local):
            return
        until = time.monotonic() + DROP_S
        while True:
            try:
                self._agent.delete(self._object(number))
                return
            except Busy:
                if time.monotonic() > until:
                    return
                time.sleep(0.005)
            except RostrumError:
                return


def _by_gloo(name: str) -> Callable[..., Any]:
    def call(self: Group, *given: Any, **named: Any) -> Any:
        return getattr(self._gloo, name)(*given, **named)

    call.__name__ = name
    return call


for _name in _BY_GLOO:
    if hasattr(dist.ProcessGroup, _name):
        setattr(Group, _name, _by_gloo(_name))


def create(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Group:
    return Group(store, rank, size, timeout)


def register() -> None:
    """Makes the backend known; more than once does nothing.

    Raises:
        ImportError: this PyTorch has no torch.distributed with Gloo.
    """
    if not dist.is_available() or not hasattr(dist, "ProcessGroupGloo"):
        raise ImportError("rostrum.torch needs a PyTorch with torch.distributed and Gloo")
    if hasattr(dist.Backend, NAME.upper()):
        return
    try:
        dist.Backend.register_backend(NAME, create, devices=["cpu"])
    except TypeError:  # PyTorch 1.13 has no devices
        dist.Backend.register_backend(NAME, create)
