"""The emulator's control socket, for tests and experiments: one JSON object per line in, one per line out.

    {"op": "state"}                                         cross-connects, light paths, faults, sessions, timing
    {"op": "counters"}                                      frames by port
    {"op": "fault", "kind": "dead-port", "port": 5, "side": "output"}     -> {"ok": true, "id": "f1"}; kinds: faults.py
    {"op": "clear", "id": "f1"}   {"op": "clear"}           one fault, or all
    {"op": "timing", "reconfiguration": "uniform:60ms:80ms", "ringing": "5ms:0.5", "seed": 7}      each optional
    {"op": "drop-sessions"}                                 cut every connection
    {"op": "log"}                                           the last 1,000 commands: when, from whom, what, verdict

Refusals are {"ok": false, "error": "text"}.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rostrum.lab.ocs import faults, timing
from rostrum.lab.ocs.engine import Engine
from rostrum.lab.ocs.server import Server

if TYPE_CHECKING:
    from rostrum.lab.ocs.gnmi import GnmiServer

MAX_LINE_BYTES = 65_536
MAX_CLIENTS = 32


class Control:
    """Serves one emulated OCS' control socket."""

    def __init__(self, engine: Engine, server: Server | GnmiServer, path: Path) -> None:
        self._engine = engine
        self._face = server
        self._path = path
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Raises OSError. A socket file left by a killed emulator is replaced."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=MAX_LINE_BYTES)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in tuple(self._clients):
                writer.close()
            await self._server.wait_closed()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= MAX_CLIENTS:
            writer.close()
            return
        self._clients.add(writer)
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self._reply(line)).encode() + b"\n")
                await writer.drain()
        except ValueError:  # readline: longer than the limit
            writer.write(json.dumps({"ok": False, "error": f"a line longer than {MAX_LINE_BYTES} bytes"}).encode())
        except ConnectionError:
            pass
        finally:
            self._clients.discard(writer)
            writer.close()

    def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:
            return {"ok": False, "error": f"not JSON: {error}"}
        if not isinstance(request, dict):
            return {"ok": False, "error": 'send an object such as {"op": "state"}'}
        operations = {
            "state": self._state,
            "counters": self._counters,
            "fault": self._fault,
            "clear": self._clear,
            "timing": self._timing,
            "drop-sessions": self._drop_sessions,
            "log": self._log,
            "model": self._model,
        }
        operation = operations.get(str(request.get("op")))
        if operation is None:
            return {"ok": False, "error": f"no op {request.get('op')!r}; there are: {', '.join(operations)}"}
        try:
            return {"ok": True, **operation(request)}
        except ValueError as error:
            return {"ok": False, "error": str(error)}

    def _state(self, request: dict[str, Any]) -> dict[str, Any]:
        engine, now = self._engine, self._engine.now()
        model = engine.model
        return {
            "name": engine.ocs.name,
            "now_ns": now,
            "cross_connects": [
                {
                    "input": c.pair.input,
                    "output": c.pair.output,
                    "state": c.state.value,
                    "cause": c.cause,
                    "input_dbm": c.input_dbm,
                    "output_dbm": c.output_dbm,
                }
                for c in engine.cross_connects()
            ],
            "paths": {str(port): [vars(b) for b in branches] for port, branches in model.paths(now).items()},
            "faults": {name: {"kind": type(f).__name__, **vars(f)} for name, f in model.faults.items()},
            "sessions": self._face.logged_in(),
            "reconfiguration": vars(model.reconfiguration),
            "ringing_s": model.ringing_s,
            "ringing_loss": model.ringing_loss,
        }

    def _model(self, request: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self._face, Server):
            raise ValueError(f"{self._engine.ocs.name} speaks TL1; a switch with dialect: gnmi has a model")
        return {"model": self._face.tree()}

    def _counters(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ports": {str(port): counts for port, counts in self._engine.counters().items()}}

    def _fault(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"id": self._engine.add_fault(faults.parse(request, self._engine.ocs))}

    def _clear(self, request: dict[str, Any]) -> dict[str, Any]:
        known = list(self._engine.model.faults)
        names = known if request.get("id") is None else [request["id"]]
        if any(name not in known for name in names):
            raise ValueError(f"no fault {names[0]!r}; there are: {', '.join(known) or 'none'}")
        for name in names:
            self._engine.clear_fault(name)
        return {"cleared": names}

    def _timing(self, request: dict[str, Any]) -> dict[str, Any]:
        model = self._engine.model
        new = {key: request.get(key) for key in ("reconfiguration", "ringing")}
        for key, value in new.items():
            if value is not None and not isinstance(value, str):
                raise ValueError(f"{key} must be a string such as those of the command line")
        reconfiguration = timing.reconfiguration(new["reconfiguration"]) if new["reconfiguration"] else None
        ringing = timing.ringing(new["ringing"]) if new["ringing"] else None
        seed = request.get("seed")
        if seed is not None and not isinstance(seed, int):
            raise ValueError("seed must be a whole number")
        model.set_timing(reconfiguration, ringing, seed)
        return {}

    def _log(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"now_ns": self._engine.now(), "commands": [one.as_dict() for one in self._face.commands]}

    def _drop_sessions(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"dropped": self._face.drop_sessions()}


def ask(path: Path | str, request: dict[str, Any], timeout_s: float = 5.0) -> dict[str, Any]:
    """Send one request to a control socket and return its reply. Raises OSError, TimeoutError, or ValueError with the
    emulator's text if it refuses."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as sock:
        sock.settimeout(timeout_s)
        sock.connect(str(path))
        sock.sendall(json.dumps(request).encode() + b"\n")
        with sock.makefile("rb") as lines:
            line = lines.readline()
    if not line:
        raise ConnectionError(f"{path} closed without an answer")
    reply: dict[str, Any] = json.loads(line)
    if not reply.get("ok"):
        raise ValueError(f"{path}: {reply.get('error')}")
    return reply
