"""Message groups as agents and people name them: options, uses, views. Values only."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address

NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}")
ORDERS = ("none", "fifo", "sender", "agreed", "total")
GUARANTEES = ("best-effort", "reliable", "virtual-synchrony")
SLOW = ("wait", "drop", "disconnect")
KEEP = re.compile(r"[1-9]\d{0,6}[KMGsmhd]", re.ASCII)  # a size, or a time: agent/api/group_delivery.h
KEEP_ON = ("memory", "disk")
PROTOCOL = re.compile(r"[a-z0-9._-]{1,31}")
OPTIONS_BYTES = 255
ENGINES_KEPT = 1024  # answers about the options that were asked for last
_NUMBER = re.compile(r"0*(\d{1,7})(?:\.(\d{1,3}))?", re.ASCII)


class WrongOptions(Exception):
    """An engine does not take these options; the text says why."""


@dataclass(frozen=True)
class EngineOption:
    """What an engine lets people choose: a decimal number, kept in thousandths; a whole one unless `fraction`."""

    name: str
    least_milli: int
    most_milli: int
    usual_milli: int
    fraction: bool = False
    meaning: str = field(default="", compare=False)  # for people, with its unit
    later: bool = False  # as in rostrum.thrift

    def read(self, text: str, engine: str) -> int:
        """The value in thousandths. Raises WrongOptions."""
        found = _NUMBER.fullmatch(text)
        value = int(found[1]) * 1000 + int((found[2] or "").ljust(3, "0")) if found else -1
        if not self.least_milli <= value <= self.most_milli or (value % 1000 and not self.fraction):
            kind = "" if self.fraction else "a whole number from "
            raise WrongOptions(
                f"{self.name} {text[:32]} is out of range: {self.name} of {engine} is {kind}"
                f"{shown_milli(self.least_milli)} to {shown_milli(self.most_milli)}"
            )
        return value


@dataclass(frozen=True)
class Engine:
    """A protocol that an agent says it can run, and the options it takes: "name=value,name=value" as text."""

    name: str
    options: tuple[EngineOption, ...] = ()
    regions: bool = False  # its groups travel in regions
    meaning: str = field(default="", compare=False)  # for people

    def read(self, text: str) -> dict[str, int]:
        """What the text names, in thousandths. Raises WrongOptions, as text like the agent's own check."""
        known = {one.name: one for one in self.options}
        named = dict[str, int]()
        for part in text.split(",") if text else ():
            name, _, value = part.partition("=")
            if name not in known:
                has = ", ".join(known) or "none"
                raise WrongOptions(f"{self.name} has no option {name[:32]!r}; it has {has}")
            if name in named:
                raise WrongOptions(f"{name} is named twice in the options {text[:100]!r}")
            named[name] = known[name].read(value, self.name)
        return named

    def complete(self, text: str) -> str:
        """All options, those that are not named as usual: the same values are the same text. An option that older
        agents may not know (`later`) is left out while it is as usual. Raises WrongOptions.
        """
        values = self._values(text)
        shown = (one.name for one in self.options if not one.later or values[one.name] != one.usual_milli)
        return ",".join(f"{name}={shown_milli(values[name])}" for name in shown)

    def agree(self, asked: str, has: str) -> bool:
        """All that `asked` names is so in `has`. Raises WrongOptions."""
        values = self._values(has)
        return all(values[name] == value for name, value in self.read(asked).items())

    def _values(self, text: str) -> dict[str, int]:
        return {one.name: one.usual_milli for one in self.options} | self.read(text)


@lru_cache(maxsize=ENGINES_KEPT)
def completed(engine: Engine, text: str) -> str:
    """As Engine.complete: of ten thousand groups most have the same options. Raises WrongOptions."""
    return engine.complete(text)


@lru_cache(maxsize=ENGINES_KEPT)
def agreed(engine: Engine, asked: str, has: str) -> bool:
    """As Engine.agree. Raises WrongOptions."""
    return engine.agree(asked, has)


def shown_milli(milli: int) -> str:
    """A decimal number without needless zeros."""
    whole, part = divmod(milli, 1000)
    return f"{whole}.{part:03}".rstrip("0") if part else str(whole)


@dataclass(frozen=True)
class Delivery:
    """What a group promises, and what it does about a program that does not take its messages in time."""

    order: str = "none"
    guarantee: str = ""  # "": the usual one of its order
    slow: str = ""
    keep: str = ""  # messages kept for replay: so many bytes (64M), or so long (10m); "": none
    keep_on: str = ""

    @property
    def guaranteed(self) -> bool:
        return self.order in ("sender", "agreed", "total")

    def text(self) -> str:
        """As GroupOptions.order has it: the same delivery is the same text. Raises WrongOptions."""
        usual = "virtual-synchrony" if self.guaranteed else "best-effort"
        guarantee, slow = self.guarantee or usual, self.slow or "wait"
        if self.order not in ORDERS:
            raise WrongOptions(f"there is no order {self.order[:40]!r}; it is one of {', '.join(ORDERS)}")
        if guarantee not in GUARANTEES:
            raise WrongOptions(f"there is no guarantee {guarantee[:40]!r}; it is one of {', '.join(GUARANTEES)}")
        if slow not in SLOW:
            raise WrongOptions(f"slow is one of {', '.join(SLOW)}, not {slow[:40]!r}")
        if self.guaranteed != (guarantee != "best-effort"):
            fit = "sender, agreed or total" if guarantee != "best-effort" else "none or fifo"
            raise WrongOptions(f"{guarantee} goes with order {fit}, not {self.order}")
        if self.slow and not self.guaranteed:
            raise WrongOptions(
                f"slow={self.slow} goes with order sender, agreed or total; others give out what is taken in time"
            )
        self._check_keep()
        parts = [self.order]
        parts += ["guarantee=reliable"] if guarantee == "reliable" else []
        parts += [f"slow={slow}"] if slow != "wait" else []
        parts += [f"keep={self.keep}"] if self.keep else []
        parts += ["keep-on=disk"] if self.keep_on == "disk" else []
        return ",".join(parts)

    def _check_keep(self) -> None:
        if self.keep and not KEEP.fullmatch(self.keep):
            raise WrongOptions(
                f"keep is a size such as 64M (K, M, G), or a time such as 10m (s, m, h, d), not {self.keep[:40]!r}"
            )
        if self.keep and self.order != "total":
            raise WrongOptions(
                f"keep goes with order total, where a message has one number at all members; not with {self.order}"
            )
        if self.keep_on and self.keep_on not in KEEP_ON:
            raise WrongOptions(f"keep_on is one of {', '.join(KEEP_ON)}, not {self.keep_on[:40]!r}")
        if self.keep_on and not self.keep:
            raise WrongOptions("keep_on goes with keep: how much, or for how long")


def delivery_of(text: str) -> Delivery:
    """Of GroupOptions.order, everything named. Raises WrongOptions."""
    order, *rest = text.split(",")
    named = dict(part.partition("=")[::2] for part in rest)
    keep, keep_on = named.pop("keep", ""), named.pop("keep-on", "")
    found = Delivery(order, named.pop("guarantee", ""), named.pop("slow", ""), keep, keep_on)
    if named or found.text() != text:
        raise WrongOptions(f"{text[:60]!r} is no order of a group: one of {', '.join(ORDERS)}")
    if found.guaranteed:
        kept_on = (keep_on or "memory") if keep else ""
        return Delivery(order, found.guarantee or "virtual-synchrony", found.slow or "wait", keep, kept_on)
    return Delivery(order, "best-effort", "drop")


@dataclass(frozen=True)
class GroupOptions:
    """How a group's messages travel. `protocol`: the engine's name; `order`: Delivery as text; `options`: the engine's
    own, of a group all of them, of somebody who asks those that matter to him.
    """

    protocol: str = "plain"
    order: str = "none"
    options: str = ""


@lru_cache(maxsize=ENGINES_KEPT)
def wrong_options(one: GroupOptions) -> str:
    """What no engine would take, as text; empty = nothing."""
    if not PROTOCOL.fullmatch(one.protocol):
        return f"{one.protocol[:40]!r} cannot be a group protocol: 1 to 31 characters of a-z 0-9 . _ -"
    try:
        delivery_of(one.order)
    except WrongOptions as error:
        return str(error)
    if len(one.options.encode()) > OPTIONS_BYTES:
        return f"options are {OPTIONS_BYTES} bytes at most, not {len(one.options.encode())}"
    return ""


def wrong_name(name: str) -> str:
    """What is wrong with a group's name, as text; empty = nothing."""
    if NAME.fullmatch(name):
        return ""
    return f"{name[:40]!r} cannot be a group's name: 1 to 128 characters of A-Z a-z 0-9 . _ : -"


@dataclass(frozen=True)
class GroupUse:
    """What an agent wants of a group; the last three are what it holds of it after a reconnect (0, None = nothing)."""

    group: str
    options: GroupOptions | None = None
    id: int = 0
    version: int = 0
    address: IPv4Address | None = None


@dataclass(frozen=True)
class SlowProgram:
    """As in rostrum.thrift: `state` is "waited-for", "loses" or "put-out"."""

    program: str
    state: str
    lost: int


@dataclass(frozen=True)
class GroupPeer:
    """A server that views name by `id`. `boot_id`: of its agent, differs at each start."""

    id: int
    server: str
    address: IPv4Address
    port: int
    boot_id: int


@dataclass(frozen=True)
class GroupFacts:
    group: str
    address: IPv4Address
    data_port: int
    options: GroupOptions
    more: tuple[IPv4Address, ...] = ()  # further channels, of engines that use several
    regions: tuple[int, ...] | None = None  # of engines that have them: those that together have the members


@dataclass(frozen=True)
class GroupRegion:
    """As in rostrum.thrift; `base_version` None = full. Ids of peers; without any: it is of no interest any more."""

    region: int
    version: int
    address: IPv4Address | None
    data_port: int
    protocol: str
    options: str
    nodes: tuple[int, ...]
    base_version: int | None = None
    gone: tuple[int, ...] = ()


@dataclass(frozen=True)
class GroupView:
    """As in rostrum.thrift; `base_version` None = full. Ids of peers."""

    id: int
    version: int
    base_version: int | None
    facts: GroupFacts | None
    members: tuple[int, ...]
    senders: tuple[int, ...]
    gone: tuple[int, ...] = ()
    listens: tuple[int, ...] | None = (
        None  # channels (0: the address, 1 and on: `more`) of this server alone; None: all
    )
    rejoined: bool = False  # to a member that was out of the group, and may not know it
