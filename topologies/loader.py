"""The one loader of topology files: `load(path_or_name)` -> `Topology`."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from itertools import islice
from pathlib import Path
from typing import Any

from rostrum.topologies import checks, circuit_kinds
from rostrum.topologies.completion import complete
from rostrum.topologies.document import BYTES_MAX, Document
from rostrum.topologies.model import (
    Coexist,
    Emulation,
    End,
    Light,
    Link,
    Manager,
    Ocs,
    Outside,
    P4Target,
    Reconfiguration,
    Server,
    Site,
    Splitter,
    Switch,
    Tenant,
    Topology,
)
from rostrum.topologies.problems import PROBLEMS_MAX, Place, Problem, TopologyError, did_you_mean
from rostrum.topologies.shape import Accepts, accepts

FOLDER = Path(__file__).resolve().parent
P4RUNTIME_PORT = 9559
MANAGEMENT_PORTS = {one.name: one.management_port for one in circuit_kinds.BUILT_IN.values()}  # of an OCS
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
RATE_MAX_BPS = 10**13

__all__ = ["TopologyError", "builtin_names", "load", "load_text", "rate_bps"]


def builtin_names() -> list[str]:
    """Names of the topology files that come with rostrum."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def builtin_file(path_or_name: str | Path) -> Path:
    """The file of a topology that comes with rostrum if this is the name of one, else the path as it is."""
    builtin = FOLDER / f"{path_or_name}.yaml"
    is_name = isinstance(path_or_name, str) and re.fullmatch(r"[a-z][a-z0-9_-]*", path_or_name) and builtin.is_file()
    return builtin if is_name else Path(path_or_name)


def load(path_or_name: str | Path, *, completed: bool = False) -> Topology:
    """The data center described by a topology file, or by one that comes with rostrum (its name without `.yaml`).

    `completed`: with what it leaves out filled in, as for a lab (completion.py).

    Raises TopologyError naming every problem found, with its place, line and remedy.
    """
    path = builtin_file(path_or_name)
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TopologyError(
            str(path_or_name)[:200],
            [Problem((), 0, f"cannot be read: {reason}; built in are {', '.join(builtin_names())}")],
        ) from error
    if len(raw) > BYTES_MAX:
        raise TopologyError(str(path), [Problem((), 0, f"larger than {BYTES_MAX >> 20} MiB: not a topology file")])
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise TopologyError(
            str(path), [Problem((), 0, f"not UTF-8 text (byte {error.start}): not a topology file")]
        ) from error
    return load_text(text, str(path), completed=completed)


def load_text(text: str, source: str = "topology", *, completed: bool = False) -> Topology:
    """As `load`, from the file's text; `source` is what errors call it."""
    with _uncollected():
        document = Document(text)
        if document.problems:
            raise TopologyError(source, document.problems)
        if completed:
            document.value = complete(document.value)
        problems = _schema_problems(document)
        if not problems:
            topology, problems = _build(document)
            if not problems:
                return topology
        raise TopologyError(source, problems)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without a look for cycles, of which none are made here: for a million new objects that takes two thirds of the
    time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def rate_bps(value: str | int) -> int:
    """Bits per second of `10G`, `100M`, `2.5G`, `64k` or a plain number. Raises ValueError with the remedy."""
    match = re.fullmatch(r"([0-9]{1,15})(\.[0-9]{1,9})?([kMGT]?)", str(value))
    if not match:
        raise ValueError(f"{value!r} is not a rate; write bit/s as a number with k, M, G or T, for example 10G or 100M")
    rate = int(float(match[1] + (match[2] or "")) * UNITS[match[3]])
    if not 1_000 <= rate <= RATE_MAX_BPS:
        raise ValueError(f"{value} is {rate} bit/s; rates from 1k to {RATE_MAX_BPS // 10**12}T are possible")
    return rate


def is_name(text: str) -> bool:
    """Whether something in a topology file can be called so."""
    return re.fullmatch(_schema()["$defs"]["name"]["pattern"], text) is not None


@functools.cache
def _schema() -> dict[str, Any]:
    return dict(json.loads((FOLDER / "schema.json").read_text()))


@functools.cache
def _has_shape() -> Accepts:
    return accepts(_schema())


@functools.cache
def _validator() -> Any:
    import jsonschema  # here: who reads good files need not wait for it

    return jsonschema.Draft202012Validator(_schema())


def _schema_problems(document: Document) -> list[Problem]:
    if _has_shape()(document.value):
        return []
    problems = []
    for error in _validator().iter_errors(document.value):
        place: Place = tuple(error.absolute_path)
        problems += [Problem(place, document.line(place), text) for text in _text(error)]
        if len(problems) >= PROBLEMS_MAX:
            break
    return list({(one.place, one.text): one for one in problems}.values())  # each key that lacks names all of them


def _text(error: Any) -> list[str]:
    """jsonschema's finding as sentences that say what to do."""
    value, wanted = error.instance, error.validator_value
    shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
    match error.validator:
        case "required":
            return [f"lacks {name}; add it" for name in wanted if name not in value][:20]
        case "additionalProperties":
            known = error.schema.get("properties", {})
            return [f"unknown key {key[:60]!r}{did_you_mean(key, known)}" for key in value if key not in known][:20]
        case "type":
            names = [wanted] if isinstance(wanted, str) else wanted
            return [f"{shown} is not {' or '.join(_TYPES.get(name, name) for name in names)}"]
        case "enum":
            return [f"{shown} is none of {', '.join(map(str, wanted))}"]
        case "const":
            return [f"{shown}: this program reads version {wanted} of the format; write `{error.path[-1]}: {wanted}`"]
        case "minimum" | "maximum":
            return [f"{shown} is out of range: {error.validator} {wanted}"]
        case "pattern":
            return [
                f"{shown} is not usable as a name: letters a-z, digits, - and _, beginning with a letter, at most 32"
            ]
        case "minProperties" | "minItems":
            return [f"needs at least {wanted} of them"]
        case "maxProperties" | "maxItems" | "maxLength":
            return [f"too long: at most {wanted}"]
    return [str(error.message)[:200]]


_TYPES = {
    "object": "a mapping (key: value)",
    "array": "a list",
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
}


class _Reader:
    """Turns texts into values; what does not parse becomes a problem and a stand-in, so that all is reported."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def add(self, place: Place, text: str) -> None:
        self.problems.append(Problem(place, self.document.line(place), text))

    def address(self, text: str, place: Place) -> IPv4Address:
        try:
            return IPv4Address(text)
        except ValueError:
            self.add(place, f"{text!r} is not an IPv4 address such as 10.0.1.1")
            return IPv4Address(0)

    def network(self, text: str, place: Place) -> IPv4Network:
        try:
            return IPv4Network(text, strict=True)
        except ValueError as error:
            remedy = (
                f"; did you mean {IPv4Network(text, strict=False)}?"
                if "host bits" in str(error)
                else ", such as 10.0.0.0/16"
            )
            self.add(place, f"{text!r} is not an IPv4 network{remedy}")
            return IPv4Network("0.0.0.0/0")

    def rate(self, value: str | int, place: Place) -> int:
        try:
            return rate_bps(value)
        except ValueError as error:
            self.add(place, str(error))
            return 1_000

    def end(self, text: str, place: Place, nodes: dict[str, Any]) -> End:
        node, colon, port = text.partition(":")
        if not colon:
            if node in nodes["switches"] or node in nodes.get("ocs", {}):
                self.add(place, f"{text!r}: only a server stands without a port; write {node}:PORT")
                return End(node, -1)
            return End(node, 0)
        if node in nodes["servers"]:
            self.add(place, f"{text!r}: a server has one data NIC; write {node} alone")
            return End(node, 0)
        if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65279:
            self.add(place, f"{text!r}: the port must be a number from 1 to 65279, as printed on the device")
            return End(node, -1)
        return End(node, int(port))


def _build(document: Document) -> tuple[Topology, list[Problem]]:
    value, reader = document.value, _Reader(document)
    network, agent, emulation = value["network"], value.get("agent", {}), value.get("emulation", {})
    links = tuple(
        Link(
            reader.end(link["a"], ("links", i, "a"), value),
            reader.end(link["b"], ("links", i, "b"), value),
            reader.rate(link["rate"], ("links", i, "rate")),
        )
        for i, link in enumerate(value["links"])
    )
    ends = _far_ends(links)
    topology = Topology(
        name=value["name"],
        data=reader.network(network["data"], ("network", "data")),
        management=reader.network(network["management"], ("network", "management")),
        multicast=reader.network(network["multicast"], ("network", "multicast")),
        mtu=network.get("mtu", 9000),
        control_port=agent.get("control_port", 7071),
        data_port=agent.get("data_port", 7070),
        manager=Manager(
            address=reader.address(value["manager"]["address"], ("manager", "address")),
            openflow_port=value["manager"].get("openflow_port", 6653),
            thrift_port=value["manager"].get("thrift_port", 9090),
            rest_port=value["manager"].get("rest_port", 8080),
            standbys=tuple(
                reader.address(one, ("manager", "standbys", number))
                for number, one in enumerate(value["manager"].get("standbys", ()))
            ),
        ),
        switches={name: _switch(name, entry, ends, reader) for name, entry in value["switches"].items()},
        servers={
            name: _server(name, entry, ends, value["switches"], reader) for name, entry in value["servers"].items()
        },
        links=links,
        ocs={name: _ocs(name, entry, ends, reader) for name, entry in value.get("ocs", {}).items()},
        emulation=_emulation(emulation),
        sites={name: _site(name, entry, reader) for name, entry in value.get("sites", {}).items()},
        secure=value.get("security") == "required",
        tenants={
            name: Tenant(name, tuple(one["servers"]), tuple(one.get("groups", ())), one.get("quota", ""))
            for name, one in value.get("tenants", {}).items()
        },
        regions=tuple(map(tuple, value.get("regions", ()))),
    )
    for place, text in islice(checks.all_of(topology), PROBLEMS_MAX):
        reader.add(place, text)
    return topology, reader.problems


Ends = dict[str, list[tuple[End, End, int]]]  # node -> (own end, far end, bit/s) of its links


def _far_ends(links: tuple[Link, ...]) -> Ends:
    ends: Ends = defaultdict(list)
    for link in links:
        ends[link.a.node].append((link.a, link.b, link.rate_bps))
    for link in links:
        ends[link.b.node].append((link.b, link.a, link.rate_bps))
    return ends


def _switch(name: str, entry: dict[str, Any], far_ends: Ends, reader: _Reader) -> Switch:
    ends = far_ends[name]
    southbound = entry.get("southbound", "openflow")
    needed, other = ("p4runtime", "dpid") if southbound == "p4runtime" else ("dpid", "p4runtime")
    for word in ("dpid", "p4runtime"):
        if southbound == "none" and word in entry:
            reader.add(("switches", name, word), "has no meaning with southbound: none; remove it")
    if needed not in entry and southbound != "none":
        reader.add(("switches", name), f"lacks {needed}, which southbound: {southbound} needs; add it")
    if other in entry and southbound == "openflow":
        reader.add(("switches", name, other), "has no meaning with southbound: openflow; remove it, or say p4runtime")
    p4 = entry.get("p4runtime") if southbound == "p4runtime" else None
    return Switch(
        name=name,
        role=entry["role"],
        southbound=southbound,
        dpid=entry.get("dpid", 0),
        neighbours={own.port: far for own, far, _ in ends},
        rates={own.port: rate for own, _, rate in ends},
        p4=P4Target(
            reader.address(p4["address"], ("switches", name, "p4runtime", "address")),
            p4.get("port", P4RUNTIME_PORT),
            p4.get("device_id", 1),
            p4.get("queues", 1),
        )
        if p4
        else None,
        server=entry.get("server", ""),
        coexist=_coexist(name, entry, southbound, reader),
        queue=entry.get("queue"),
    )


def _coexist(name: str, entry: dict[str, Any], southbound: str, reader: _Reader) -> Coexist | None:
    said = entry.get("coexist", False)
    for word in ("coexist", "queue"):
        if southbound != "openflow" and word in entry:
            reader.add(("switches", name, word), "is for OpenFlow switches; remove it, or say southbound: openflow")
    if said is False:
        return None
    return Coexist() if said is True else Coexist(said.get("table", 0), said.get("priority", Coexist.priority))


def _server(name: str, entry: dict[str, Any], far_ends: Ends, switches: dict[str, Any], reader: _Reader) -> Server:
    tors = [(far, rate) for _, far, rate in far_ends[name] if switches.get(far.node, {}).get("role") == "tor"]
    far, rate = tors[0] if tors else (End("", 0), 1_000)
    if not tors:
        reader.add(
            ("servers", name),
            f'no link to a ToR switch; add one to links, such as {{a: {name}, b: "TOR:PORT", rate: 10G}}',
        )
    return Server(
        name=name,
        address=reader.address(entry["address"], ("servers", name, "address")),
        management=reader.address(entry["management"], ("servers", name, "management")),
        tor=far.node,
        tor_port=far.port,
        rate_bps=rate,
    )


def _site(name: str, entry: dict[str, Any], reader: _Reader) -> Site:
    outside = {}
    for server, text in entry.get("outside", {}).items():
        address, colon, port = text.partition(":")
        place: Place = ("sites", name, "outside", server)
        if colon and not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65536):
            reader.add(place, f"{text!r} has no port from 1 to 65535 behind its colon; write ADDRESS or ADDRESS:PORT")
            port = ""
        outside[server] = Outside(reader.address(address, place), int(port or 0))
    return Site(
        name=name,
        servers=tuple(entry["servers"]),
        relays=tuple(entry.get("relays", ())),
        outside=outside,
        nat=entry.get("nat", False),
        via=entry.get("via", ""),
    )


def _ocs(name: str, entry: dict[str, Any], far_ends: Ends, reader: _Reader) -> Ocs:
    dialect, light = entry.get("dialect", "glimmerglass"), entry.get("light", {})
    kind = circuit_kinds.BUILT_IN["glimmerglass"]
    given = [word for word in ("password", "password_file", "password_env") if word in entry]
    if len(given) > 1:
        reader.add(("ocs", name, given[1]), f"stands beside {given[0]}; keep one of them")
    try:
        kind = circuit_kinds.kind(dialect)
    except circuit_kinds.UnknownKind as error:
        reader.add(("ocs", name, "dialect"), str(error))
    return Ocs(
        name=name,
        ports=entry["ports"],
        dialect=kind.name,
        address=reader.address(entry["address"], ("ocs", name, "address")),
        management_port=entry.get("management_port", entry.get("tl1_port", kind.management_port)),
        user=entry.get("user", "admin"),
        password=entry.get("password", "rostrum"),
        reconfiguration_s=entry.get("reconfiguration_ms", 70) / 1000,
        light=Light(
            transmit_dbm=float(light.get("transmit_dbm", 0.0)),
            sensitivity_dbm=float(light.get("sensitivity_dbm", -18.0)),
            cross_connect_loss_db=float(light.get("cross_connect_loss_db", 1.0)),
        ),
        splitters={
            key: Splitter(key, name, item["fanout"], float(item["loss_db"]), item["input"], tuple(item["outputs"]))
            for key, item in entry.get("splitters", {}).items()
        },
        attached={own.port: far for own, far, _ in far_ends[name]},
        password_file=entry.get("password_file", ""),
        password_env=entry.get("password_env", ""),
        tls=entry.get("tls"),
    )


def _emulation(entry: dict[str, Any]) -> Emulation:
    reconfiguration, ringing = entry.get("reconfiguration", {}), entry.get("ringing", {})
    return Emulation(
        reconfiguration=Reconfiguration(
            distribution=reconfiguration.get("distribution", "fixed"),
            mean_s=reconfiguration.get("mean_ms", 70) / 1000,
            spread_s=reconfiguration.get("spread_ms", 0) / 1000,
        ),
        ringing_s=ringing.get("duration_ms", 5) / 1000,
        ringing_loss=float(ringing.get("loss", 0.5)),
        seed=entry.get("seed", 1),
    )
