"""Which controller is primary (P4Runtime specification, chapter 5). No threads of its own; the caller serializes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from finsy.proto import U128, p4r, rpc_status
from rostrum.lab.p4target.status import Code, full, invalid, missing, too_early

STREAMS_MAX = 16  # controllers of a role


class Stream:
    """A controller's StreamChannel. `send` takes a StreamMessageResponse, False if it cannot."""

    def __init__(self, send: Callable[[Any], bool]) -> None:
        self.send = send
        self.role: str | None = None  # None: it has not introduced itself
        self.election_id: int | None = None


class Role:
    """`highest`: election id, of all there ever were; 0 if there was none yet."""

    def __init__(self, name: str) -> None:
        self.name, self.highest, self.ever = name, 0, False
        self.config: Any = None
        self.streams: list[Stream] = []

    @property
    def primary(self) -> Stream | None:
        if not self.ever:
            return None
        return next((stream for stream in self.streams if stream.election_id == self.highest), None)


class Arbitration:
    def __init__(self, device_id: int, primary_changed: Callable[[], None]) -> None:
        self.device_id = device_id
        self._roles: dict[str, Role] = {}
        self._primary_changed = primary_changed

    def update(self, stream: Stream, message: Any) -> None:
        """A MasterArbitrationUpdate. Raises Refused, after which the stream is to be ended."""
        name = message.role.name or (str(message.role.id) if message.role.id else "")
        if stream.role is None:
            if message.device_id != self.device_id:
                raise missing(f"there is no device {message.device_id}, this is {self.device_id}")
        elif message.device_id != self.device_id or name != stream.role:
            raise too_early("a stream stays with its device and role; open another one")
        election_id = U128.decode(message.election_id) if message.HasField("election_id") else None
        role = self._roles.setdefault(name, Role(name))
        others = [each for each in role.streams if each is not stream]
        if election_id is not None and any(each.election_id == election_id for each in others):
            raise invalid(f"election id {election_id} is used by another controller")
        if stream.role is None:
            if len(role.streams) >= STREAMS_MAX:
                raise full(f"there are {STREAMS_MAX} controllers already")
            role.streams.append(stream)
        before, was = role.primary, stream.election_id
        stream.role, stream.election_id = name, election_id
        self._decide(role, stream, before, was is not None and before is stream, message)

    def _decide(self, role: Role, stream: Stream, before: Stream | None, was_primary: bool, message: Any) -> None:
        identity = stream.election_id
        if identity is not None and (not role.ever or identity >= role.highest):
            role.highest, role.ever = identity, True
            role.config = message.role.config if message.role.HasField("config") else None
            for other in role.streams:
                if other is not stream:
                    self._notify(role, other)
            self._notify(role, stream)
            if before is not stream:
                self._primary_changed()
        elif was_primary:
            for each in role.streams:
                self._notify(role, each)
            self._primary_changed()
        else:
            self._notify(role, stream)

    def leave(self, stream: Stream) -> None:
        """The stream is broken or closed."""
        role = self._roles.get(stream.role) if stream.role is not None else None
        if role is None or stream not in role.streams:
            return
        was_primary = role.primary is stream
        role.streams.remove(stream)
        if was_primary:
            for each in role.streams:
                self._notify(role, each)
            self._primary_changed()

    def _notify(self, role: Role, stream: Stream) -> None:
        primary = role.primary
        if primary is stream:
            status = rpc_status.Status(code=Code.OK, message="primary")
        elif primary is not None:
            status = rpc_status.Status(code=Code.ALREADY_EXISTS, message="backup: another controller is primary")
        else:
            status = rpc_status.Status(code=Code.NOT_FOUND, message="backup: there is no primary")
        update = p4r.MasterArbitrationUpdate(device_id=self.device_id, status=status)
        if role.name:
            update.role.name = role.name
        if role.config is not None:
            update.role.config.CopyFrom(role.config)
        if role.ever:
            update.election_id.CopyFrom(U128.encode(role.highest))
        stream.send(p4r.StreamMessageResponse(arbitration=update))

    # -- asked by others ----------------------------------------------------------------------------------------

    def knows(self, role: str) -> bool:
        """The default role is always there."""
        return not role or role in self._roles

    def is_primary(self, role: str, election_id: int) -> bool:
        found = self._roles.get(role)
        return found is not None and found.primary is not None and found.highest == election_id

    def is_primary_stream(self, stream: Stream) -> bool:
        role = self._roles.get(stream.role) if stream.role is not None else None
        return role is not None and role.primary is stream

    def primaries(self) -> list[Stream]:
        return [role.primary for role in list(self._roles.values()) if role.primary is not None]
