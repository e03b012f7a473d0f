"""Digests: gathered into lists, sent to the primary controller, withheld while one like it is not acknowledged.

P4Runtime specification, 9.10 (DigestEntry). Called from the forwarding thread and from those of controllers.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from finsy.proto import p4d, p4r
from rostrum.lab.p4target.info import Info, of
from rostrum.lab.p4target.status import encode, exists, invalid, missing
from rostrum.lab.p4target.table_entries import DELETE, INSERT

LIST_MAX = 256  # messages in one list, if the controller sets no bound
CACHE_MAX = 65536  # messages remembered until they are acknowledged

Values = tuple[int, ...]


@dataclass
class Subscription:
    """A digest a controller asked for. `cache`: what was sent and not acknowledged: list, and when it is forgotten."""

    config: Any
    waiting: OrderedDict[Values, None] = field(default_factory=OrderedDict)
    since: float = 0.0
    cache: OrderedDict[Values, tuple[int, float]] = field(default_factory=OrderedDict)


class Digests:
    def __init__(self, info: Info, send: Callable[[Any], bool], wake: Callable[[], None]) -> None:
        """`send` gives a DigestList to the primary and tells whether there is one; `wake`: ask for `deadline` again."""
        self.info, self._send, self._wake = info, send, wake
        self._subscriptions: dict[int, Subscription] = {}
        self._lock = threading.RLock()
        self._lists = 0
        self.lost = 0

    # -- from the data plane ------------------------------------------------------------------------------------

    def learn(self, number: int, values: Values) -> None:
        """A digest message with the program's number."""
        with self._lock:
            identity = self.info.digest_by_learn.get(number, 0)
            subscription = self._subscriptions.get(identity)
            if subscription is None or values in subscription.waiting or values in subscription.cache:
                return
            if not subscription.waiting:
                subscription.since = time.monotonic()
            subscription.waiting[values] = None
            config = subscription.config
            if not config.max_timeout_ns or len(subscription.waiting) >= (config.max_list_size or LIST_MAX):
                self._flush(identity, subscription)
            else:
                self._wake()

    def _flush(self, identity: int, subscription: Subscription) -> None:
        messages = list(subscription.waiting)
        subscription.waiting.clear()
        self._lists += 1
        digest = p4r.DigestList(digest_id=identity, list_id=self._lists, timestamp=time.time_ns())
        item = self.info.digests[identity]
        for values in messages:
            digest.data.append(data_of(item, self.info.p4info, values))
        if not self._send(digest):
            self.lost += len(messages)
            return
        timeout_ns = subscription.config.ack_timeout_ns
        if timeout_ns:
            until = time.monotonic() + timeout_ns / 1e9
            for values in messages:
                subscription.cache[values] = (self._lists, until)
            while len(subscription.cache) > CACHE_MAX:
                subscription.cache.popitem(last=False)
            self._wake()

    # -- time -----------------------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When `tick` is to be called, by the monotonic clock; None: no need."""
        with self._lock:
            times = [each.since + each.config.max_timeout_ns / 1e9 for each in self._each() if each.waiting]
            times += [next(iter(each.cache.values()))[1] for each in self._each() if each.cache]
            return min(times, default=None)

    def tick(self) -> None:
        """Sends lists that waited long enough, forgets what was not acknowledged in time."""
        with self._lock:
            now = time.monotonic()
            for identity, each in self._subscriptions.items():
                if each.waiting and now >= each.since + each.config.max_timeout_ns / 1e9:
                    self._flush(identity, each)
                while each.cache and next(iter(each.cache.values()))[1] <= now:
                    each.cache.popitem(last=False)

    def _each(self) -> list[Subscription]:
        return list(self._subscriptions.values())

    # -- from controllers -----------------------------------------------------------------------------------------

    def acknowledge(self, message: Any) -> None:
        """A DigestListAck; of a list that is not known any more it is no error."""
        of(self.info.digests, message.digest_id, "digest")
        with self._lock:
            subscription = self._subscriptions.get(message.digest_id)
            if subscription is None:
                return
            known = [values for values, (number, _) in subscription.cache.items() if number == message.list_id]
            for values in known:
                del subscription.cache[values]

    def forget(self) -> None:
        """Another primary: what the one before did not acknowledge may come again."""
        with self._lock:
            for each in self._each():
                each.cache.clear()

    def write(self, kind: int, message: Any) -> None:
        item, config = of(self.info.digests, message.digest_id, "digest"), message.config
        name = item.preamble.name
        if kind != DELETE and (min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) < 0):
            raise invalid(f"digest {name}: timeouts and sizes are not negative")
        with self._lock:
            known = message.digest_id in self._subscriptions
            if kind == INSERT and known:
                raise exists(f"digest {name} is there already")
            if kind != INSERT and not known:
                raise missing(f"digest {name} is not there")
            if kind == DELETE:
                del self._subscriptions[message.digest_id]
                return
            own = p4r.DigestEntry.Config.FromString(config.SerializeToString())
            if kind == INSERT:
                self._subscriptions[message.digest_id] = Subscription(own)
            else:
                self._subscriptions[message.digest_id].config = own
        self._wake()

    def read(self, message: Any) -> Iterator[Any]:
        if message.digest_id:
            of(self.info.digests, message.digest_id, "digest")
        with self._lock:
            found = [(number, each.config) for number, each in self._subscriptions.items()]
        for number, config in found:
            if message.digest_id in (0, number):
                yield p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=number, config=config))


def data_of(item: Any, p4info: Any, values: Values) -> Any:
    """A digest message as P4Data of the digest's type."""
    spec = item.type_spec
    kind = spec.WhichOneof("type_spec")
    if kind == "struct":
        members = [member.type_spec for member in p4info.type_info.structs[spec.struct.name].members]
        return p4d.P4Data(struct=p4d.P4StructLike(members=_members(members, values)))
    if kind == "tuple":
        return p4d.P4Data(tuple=p4d.P4StructLike(members=_members(list(spec.tuple.members), values)))
    return _scalar(spec, values[0])


def _members(specs: list[Any], values: Values) -> list[Any]:
    # The program may know more about what is in a member than a controller does: then its values are plain.
    if len(specs) != len(values):
        return [p4d.P4Data(bitstring=encode(value)) for value in values]
    return [_scalar(spec, value) for spec, value in zip(specs, values, strict=True)]


def _scalar(spec: Any, value: int) -> Any:
    if spec.WhichOneof("type_spec") == "bool":
        return p4d.P4Data(bool=bool(value))
    return p4d.P4Data(bitstring=encode(value))
