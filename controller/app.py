"""rostrum-manager: the core, its devices and its callers, wired together on one loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import uvloop
from rostrum.controller import NOT_COMPILED, logs, required
from rostrum.controller.access_options import SecurityOptions, security_options
from rostrum.controller.audit import Audit, AuditError, no_core_dumps
from rostrum.controller.config import Cluster, Config
from rostrum.controller.core import events as ev
from rostrum.controller.core import schedulers
from rostrum.controller.core.manager import Manager
from rostrum.controller.core.model import LEVEL_MULTICAST, SouthboundError
from rostrum.controller.core.persistence.parts import Records
from rostrum.controller.core.values import Quota, Settings
from rostrum.controller.group_options import group_options, group_settings
from rostrum.controller.keyvalue import line
from rostrum.controller.northbound.rest import quota_file
from rostrum.controller.northbound.rest import routes as rest_api
from rostrum.controller.northbound.rest.access import Access, AccessError, AccessOptions
from rostrum.controller.northbound.rest.http_server import HttpServer
from rostrum.controller.northbound.thrift.gate import AgentGate
from rostrum.controller.northbound.thrift.service import ThriftService
from rostrum.controller.runtime import drivers
from rostrum.controller.runtime.drivers import FabricFactory, OcsFactory
from rostrum.controller.runtime.execution import Devices
from rostrum.controller.runtime.journal import Journal
from rostrum.controller.runtime.run_clock import CLOCK
from rostrum.controller.runtime.runtime import Runtime
from rostrum.controller.runtime.store import Store, StoreError
from rostrum.controller.speed.memory import raise_descriptor_limit, settle_memory
from rostrum.topologies import loader
from rostrum.topologies.model import Topology
from rostrum.topologies.units import Duration, Size
from rostrum.topologies.version import VERSION

log = logging.getLogger("rostrum.manager")


@dataclass(frozen=True)
class Memory:
    """What a manager goes on from, other than a journal of its own. `may_act`: whether it may still give orders to
    devices, and that for at least so many seconds. `term`: in which this manager leads, the highest so far.
    """

    store: Store
    records: Records
    complete: bool
    may_act: Callable[[float], bool]
    term: int = 0
    margin_s: float = 0.0  # an order to a device that cannot tell who leads has left, and is there, within this


class App:
    """A running manager. Fabric and OCS drivers can be replaced, for tests. Raises AccessError."""

    def __init__(
        self,
        config: Config,
        fabric: FabricFactory | None = None,
        ocs: OcsFactory | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.config, self.memory = config, memory
        required.check(config)
        self.access = Access(config.access, config.topology.secure)
        try:
            self.audit = Audit(config.security.audit) if config.security.audit else None
        except AuditError as error:
            raise AccessError(str(error)) from error
        self.access.audit = self.audit
        self.doors = {address: self.access.door(address) for address in config.addresses}
        topology, settings = config.topology, config.settings
        now = CLOCK.ns()
        self.runtime = Runtime(Manager(topology, settings, now, time.time_ns() - now), CLOCK.ns)
        post = self.runtime.post
        if fabric:
            self.fabric = fabric(
                config,
                lambda name: post(ev.SwitchUp(name)),
                lambda name, cause: post(ev.SwitchDown(name, cause)),
                lambda light: post(ev.FirstLight(light)),
            )
        else:
            self.fabric = drivers.switches(config, post)
        may_order = partial(memory.may_act, memory.margin_s) if memory else None
        self.ocs = drivers.circuit_switches(config, post, ocs, may_order, memory.term if memory else 0)
        self.devices = Devices(
            topology, self.fabric, self.ocs, post, self.runtime.clock, settings.configure_bound_ns / 1e9,
            partial(memory.may_act, 0.0) if memory else None, may_order,
        )  # fmt: skip
        self.thrift = ThriftService(
            self.runtime, f"rostrum-manager {topology.name}", settings.boot_id, AgentGate(config.security.agent_tokens),
            config.security.thrift_tls, self.audit,
        )  # fmt: skip
        self.runtime.devices, self.runtime.agents = self.devices, self.thrift
        self.devices.request_of = self._request_of
        self.rest = rest_api.Rest(
            self.runtime, self.thrift.latency, lambda: self.thrift.turned_away, self.access, self.thrift.probes,
            self.thrift.tls.certificates if self.thrift.tls else dict, self.thrift.objects.objects,
        )  # fmt: skip
        self.http = HttpServer(rest_api.create(self.rest))
        self.rest.meter.connections, self.rest.meter.ended = self.http.connections, self.http.ended
        self.thrift_port = self.rest_port = 0
        self.journal: Journal | None = None
        self._grace_timer: asyncio.TimerHandle | None = None
        self.lost: asyncio.Future[StoreError] | None = None  # why it cannot go on
        self._end_watch: Callable[[], None] | None = None

    async def start(self) -> None:
        """Goes on where the manager before was, listens everywhere and connects to the devices. Raises OSError,
        SouthboundError, StoreError.
        """
        config, topology = self.config, self.config.topology
        config.run.mkdir(parents=True, exist_ok=True)
        self.lost = asyncio.get_running_loop().create_future()
        self.runtime.on_lost = self._lose
        self._end_watch = CLOCK.watch()
        CLOCK.on_pause.append(self._paused)
        if self.memory:
            self._remember(self.memory.store, self.memory.records, self.memory.complete)
        elif config.journal:
            if not _outlives(config.journal):
                log.warning(
                    line(
                        "journal will be lost",
                        file=config.journal,
                        cause="systemd removes its folder (RuntimeDirectory=) when this manager stops",
                        mend="take the unit of this release, or give --journal a file below StateDirectory=",
                    )
                )
            self.journal = Journal(config.journal, topology.name, config.journal_sync)
            self._remember(self.journal, self.journal.records, self.journal.complete)
            self._grace_timer = asyncio.get_running_loop().call_later(config.settings.grace / 1e9, self.journal.whole)
        self.thrift_port = topology.manager.thrift_port if config.thrift_port is None else config.thrift_port
        self.rest_port = topology.manager.rest_port if config.rest_port is None else config.rest_port
        openflow_port = topology.manager.openflow_port if config.openflow_port is None else config.openflow_port
        await self.fabric.start(config.addresses[0], openflow_port)
        for driver in self.ocs.values():
            await driver.start()
        for address in config.addresses:
            self.thrift_port = await self.thrift.start(address, self.thrift_port)
            self.rest_port = await self.http.listen_tcp(
                address, self.rest_port, self.doors[address], self.access.tls(self.doors[address])
            )
        await self.http.listen_unix(self.socket)
        self._write_facts()
        log.info(
            line(
                "manager started",
                topology=topology.name,
                scheduler=self.runtime.manager.core.scheduler.name,
                listen=",".join(config.addresses),
                thrift=self.thrift_port,
                rest=self.rest_port,
                openflow=getattr(self.fabric, "port", openflow_port),
                socket=self.socket,
                boot=config.settings.boot_id,
                compiled=NOT_COMPILED or "yes",
            )
        )
        for name, text in (topology.not_promised | required.not_promised(config)).items():
            log.warning(line("not promised", switch=name, cause=text))

    def _remember(self, store: Store, records: Records, complete: bool) -> None:
        manager, now = self.runtime.manager, self.runtime.clock()
        try:
            actions = manager.restore(records, now, complete)
        except Exception as error:
            log.exception("a record could not be restored")
            raise StoreError(f"what was remembered cannot be understood ({error!r}); {store.way_out}") from error
        self.runtime.begin(store, actions)
        core = manager.core
        log.info(
            line(
                "restored",
                paths=len(core.paths),
                queued=len(core.queue),
                circuits=len(core.resources.circuits),
                agents=len(core.agents),
                complete=complete,
                ms=(self.runtime.clock() - now) / 1e6,
            )
        )

    async def until(self, stop: asyncio.Event) -> None:
        """Returns when it is to stop. Raises StoreError when it has to: what it decides is remembered no more."""
        assert self.lost is not None
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((stopped, self.lost), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self.lost.done():
            raise self.lost.result()

    def _request_of(self, path_id: str) -> str:
        path = self.runtime.path(path_id)
        return path.request.request_id if path else ""

    def reload(self) -> None:
        """Reads the files again that say who may do what; one that is wrong is told, and what it said before stays."""
        if self.audit:
            self.audit.reopen()
        self.access.reload()
        self.thrift.gate.reload()
        if self.thrift.tls:
            self.thrift.tls.reload()
        if self.config.security.quotas:
            try:
                own = quota_file.of_topology(self.config.topology)
                self.runtime.post(ev.QuotasChanged(own | quota_file.read(self.config.security.quotas)))
            except AccessError as error:
                log.error(line("quotas not read", cause=error))

    def _paused(self, lost_ns: int) -> None:
        """Records name times by the wall clock, which went on."""
        self.runtime.post(ev.ClockStood(lost_ns))
        text = "bounds on the silence of agents and devices go on where they were"
        log.warning(line("this manager did not run", s=round(lost_ns / 1e9, 1), then=text))

    def give_up(self, error: StoreError) -> None:
        """Another manager has to go on: nothing is decided here any more."""
        self.runtime.close()
        self._lose(error)

    def _lose(self, error: StoreError) -> None:
        if self.lost and not self.lost.done():
            self.lost.set_result(error)

    async def close(self) -> None:
        """Stops serving. Rules and circuits stay: transfers under way finish, and the next manager adopts them."""
        if self._end_watch:
            self._end_watch()
            CLOCK.on_pause.remove(self._paused)
            self._end_watch = None
        log.info(line("manager stops", paths=sum(p.granted for p in self.runtime.manager.core.paths.values())))
        self.runtime.close()
        self.rest.events.close()
        self.rest.board.close()
        await self.thrift.close()
        await self.http.close()
        await self.devices.close()
        for driver in self.ocs.values():
            await driver.close()
        await self.fabric.close()
        if self._grace_timer:
            self._grace_timer.cancel()
        if self.audit:
            self.audit.close()
            self.audit = self.access.audit = self.thrift.audit = None
        if self.journal:
            self.journal.close()
        for path in (self.socket, self.facts):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    @property
    def socket(self) -> Path:
        return self.config.run / "manager.sock"

    @property
    def facts(self) -> Path:
        """Who runs here: pid and addresses, for those who look for the manager."""
        return self.config.run / "manager.json"

    def _write_facts(self) -> None:
        facts = {
            "pid": os.getpid(),
            "boot_id": self.config.settings.boot_id,
            "listen": list(self.config.addresses),
            "thrift_port": self.thrift_port,
            "rest_port": self.rest_port,
            "openflow_port": getattr(self.fabric, "port", 0),
        }
        self.facts.write_text(json.dumps(facts) + "\n")


async def run(config: Config) -> None:
    """Runs a manager until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if config.cluster:
        from rostrum.controller.runtime import leadership

        await leadership.run(config, stop)
        return
    app = App(config)
    loop.add_signal_handler(signal.SIGHUP, app.reload)
    try:
        await app.start()
        settle_memory()
        await app.until(stop)
    finally:
        await app.close()


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="rostrum-manager")
@click.option("--topology", required=True, help="Topology file, or the name of one that comes with rostrum.")
@click.option(
    "--run", "run_dir", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder for manager.sock."
)
@click.option(
    "--scheduler",
    default="best-effort",
    show_default=True,
    help=f"One of {', '.join(schedulers.BUILT_IN)}, or a plug-in.",
)
@click.option(
    "--circuit-wait",
    type=Duration(),
    default="2s",
    show_default=True,
    help="How long a request waits for a circuit before it takes a packet path.",
)
@click.option(
    "--wait",
    type=Duration(),
    default="30s",
    show_default=True,
    help="How long a request waits for any path before it is denied.",
)
@click.option(
    "--lease", type=Duration(), default="3s", show_default=True, help="An agent silent this long loses its paths."
)
@click.option(
    "--rest-lease",
    type=Duration(),
    default="10min",
    show_default=True,
    help="A path asked for by REST without a lease of its own is taken back after this unless renewed; 0s: never.",
)
@click.option(
    "--light-bound",
    type=Duration(),
    default=None,
    help="Agents report receivers without a first packet after this; default: from the OCS's reconfiguration time.",
)
@click.option(
    "--quarantine",
    type=Duration(),
    default="30s",
    show_default=True,
    help="Optical components that failed are out of service this long.",
)
@click.option(
    "--link-retry",
    type=Duration(),
    default="30s",
    show_default=True,
    help="How long a link that receivers suspect is out of service the first time.",
)
@click.option(
    "--session-bytes",
    type=Size(least=1),
    default=None,
    help="Most that one grant allows; the rest takes further sessions.",
)
@click.option(
    "--paths-per-server",
    type=click.IntRange(1, 10_000),
    default=16,
    show_default=True,
    help="Paths that may share a server's port, per direction.",
)
@click.option(
    "--listen",
    multiple=True,
    metavar="ADDRESS",
    help="Address to listen on (repeatable); default: the topology's manager.address. Switches connect to the first.",
)
@click.option("--thrift-port", type=click.IntRange(0, 65535), default=None, help="Default: the topology's; 0 = any.")
@click.option("--rest-port", type=click.IntRange(0, 65535), default=None, help="Default: the topology's; 0 = any.")
@click.option(
    "--rest-tokens",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Who may use REST, by bearer tokens (rostrum manager token makes them); read again when it changes. "
    "This or --rest-client-ca is needed to listen on any address but loopback.",
)
@click.option(
    "--rest-tls",
    type=(click.Path(path_type=Path, dir_okay=False), click.Path(path_type=Path, dir_okay=False)),
    metavar="CERTIFICATE KEY",
    default=None,
    help="REST over TLS on addresses that are not loopback (PEM files).",
)
@click.option(
    "--rest-client-ca",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Clients with a certificate of an operator signed by this may use REST (PEM file; with --rest-tls).",
)
@click.option(
    "--rest-open", is_flag=True, help="Let everybody use REST who reaches its address: for private networks only."
)
@click.option("--openflow-port", type=click.IntRange(0, 65535), default=None, help="Default: the topology's; 0 = any.")
@click.option(
    "--priority",
    type=click.IntRange(0, 7),
    default=LEVEL_MULTICAST,
    show_default=True,
    help="Level of multicast at switches, by DSCP (P4: PCP and queue too); 0 = that of everything else.",
)
@click.option(
    "--fast-failover",
    is_flag=True,
    help="Let switches go around a port that is down by themselves, before the manager does; costs table entries.",
)
@click.option(
    "--light-confirm",
    type=click.IntRange(1, 255),
    default=3,
    show_default=True,
    help="Data packets in a row that are first light to P4 switches, on a circuit that is being made.",
)
@click.option(
    "--election-id",
    type=click.IntRange(1, 2**63),
    default=1,
    show_default=True,
    help="At P4 switches: of several managers, the one with the highest is primary, the others write nothing.",
)
@click.option(
    "--p4-program",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=None,
    help="Folder of the compiled P4 program; default: as it comes with rostrum.",
)
@click.option(
    "--journal",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="What survives a crash is kept here; default: manager.journal in the --run folder; 'none': nowhere.",
)
@click.option(
    "--journal-sync",
    type=click.Choice(["normal", "full"]),
    default="normal",
    show_default=True,
    help="full: a power cut costs nothing either, for an fsync before each answer.",
)
@click.option(
    "--etcd",
    "etcd",
    multiple=True,
    metavar="URL",
    help="Share what is remembered with other managers, by etcd there (repeatable); one of them leads. No --journal.",
)
@click.option(
    "--etcd-tls",
    type=(click.Path(path_type=Path), click.Path(path_type=Path), click.Path(path_type=Path)),
    metavar="CA CERTIFICATE KEY",
    default=None,
    help="How to speak to etcd over https (PEM files).",
)
@click.option(
    "--etcd-user",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="File with NAME:PASSWORD of the user that etcd has for this manager, if it asks for one.",
)
@click.option("--member", default=None, help="This manager's name among them; default: its first address.")
@click.option(
    "--leader-lease",
    type=click.IntRange(2, 60),
    default=3,
    show_default=True,
    help="Seconds after which another manager takes over from one that is silent.",
)
@group_options
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
@security_options
def main(
    topology: str,
    run_dir: Path,
    scheduler: str,
    circuit_wait: float,
    wait: float,
    lease: float,
    rest_lease: float,
    light_bound: float | None,
    quarantine: float,
    link_retry: float,
    session_bytes: int | None,
    paths_per_server: int,
    listen: tuple[str, ...],
    thrift_port: int | None,
    rest_port: int | None,
    rest_tokens: Path | None,
    rest_tls: tuple[Path, Path] | None,
    rest_client_ca: Path | None,
    rest_open: bool,
    openflow_port: int | None,
    priority: int,
    fast_failover: bool,
    light_confirm: int,
    election_id: int,
    p4_program: Path | None,
    journal: Path | None,
    journal_sync: str,
    etcd: tuple[str, ...],
    etcd_tls: tuple[Path, Path, Path] | None,
    etcd_user: Path | None,
    member: str | None,
    leader_lease: int,
    verbose: bool,
    security: SecurityOptions,
    **groups: object,
) -> None:
    """The manager of a data center: takes requests for multicast paths from agents (Thrift) and people (REST), and sets
    switches and optical circuit switches for them. Logs to stderr; stops orderly at SIGTERM, and paths in use live on.
    """
    logs.to_stderr(verbose, security.log_format)
    try:
        loaded = loader.load(topology)
        schedulers.create(scheduler)
    except (loader.TopologyError, schedulers.UnknownScheduler) as error:
        raise click.ClickException(str(error)) from error
    if not 0.1 <= lease <= 3600:
        raise click.BadParameter("a lease lasts from 100ms to 60m", param_hint="--lease")
    settings = Settings(
        scheduler=scheduler,
        circuit_wait_ns=_ns(circuit_wait),
        wait_ns=_ns(wait),
        lease_ns=_ns(lease),
        rest_lease_ms=round(rest_lease * 1000) or None,
        light_bound_ms=None if light_bound is None else max(1, round(light_bound * 1000)),
        quarantine_ns=_ns(quarantine),
        link_retry_ns=_ns(link_retry),
        session_bytes=session_bytes,
        paths_per_server=paths_per_server,
        fast_failover=fast_failover,
        light_confirm=light_confirm,
        level=priority,
        boot_id=time.time_ns() // 1_000_000,
        quotas=_quotas(security, loaded),
        **group_settings(groups),
    )
    access = AccessOptions(rest_tokens, rest_tls, rest_client_ca, rest_open)
    cluster = Cluster(etcd, etcd_tls, member, leader_lease, etcd_user) if etcd else None
    config = Config(
        loaded, run_dir, settings, listen, thrift_port, rest_port, openflow_port, election_id, p4_program,
        _journal(journal, run_dir), journal_sync, cluster, access, security,
    )  # fmt: skip
    _serve(config)


def _quotas(security: SecurityOptions, topology: Topology) -> dict[str, Quota]:
    """The file's before the topology's."""
    try:
        return quota_file.of_topology(topology) | (quota_file.read(security.quotas) if security.quotas else {})
    except AccessError as error:
        raise click.ClickException(str(error)) from error


def _outlives(journal: Path) -> bool:
    """False: it lies where systemd removes everything at the unit's stop (systemd.exec(5), RUNTIME_DIRECTORY)."""
    folders = [Path(name) for name in os.environ.get("RUNTIME_DIRECTORY", "").split(":") if name]
    return not any(journal.absolute().is_relative_to(folder) for folder in folders)


def _journal(given: Path | None, run: Path) -> Path | None:
    if given is None:
        return run / "manager.journal"
    return None if str(given) == "none" else given


def _serve(config: Config) -> None:
    raise_descriptor_limit()
    if config.topology.secure:
        no_core_dumps()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(config))
    except (SouthboundError, AccessError, StoreError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        where = f"{error.filename}" if error.filename else f"cannot listen on {', '.join(config.addresses)}"
        raise click.ClickException(f"{where}: {error.strerror or error}") from error
