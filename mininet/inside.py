"""A lab's supervisor: builds the network in the private namespaces, starts the programs, answers on `<run>/lab.sock`.

Runs as the command of a `PrivateNamespace`; `lab.Lab` starts it and speaks with it. One JSON object a line each way:
{"op": "wait"} gives {"progress": TEXT}... and at last {"ready": true} or {"error": TEXT}; {"op": "status"},
{"op": "kill" or "signal", "name": NAME, "signal": NUMBER}, {"op": "start", "name": NAME} and {"op": "stop"} give
{"ok": ...} or {"error": TEXT}.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rostrum.lab import p4switches, processes, readiness
from rostrum.lab.namespace import LabError
from rostrum.lab.network import Network
from rostrum.lab.options import Options
from rostrum.topologies import TopologyError, load

REQUEST_BYTES_MAX = 65536


class Supervisor:
    def __init__(self, options: Options) -> None:
        self.options, self.run = options, Path(options.run)
        self.topology = load(options.topology)
        self.network = Network(self.topology, core_links=options.core_links)
        self.programs: dict[str, processes.Program] = {}
        self._news: list[dict[str, Any]] = []  # progress so far, and at its end "ready" or "error"
        self._more = asyncio.Condition()
        self._stopping = asyncio.Event()

    async def main(self) -> None:
        """Serves until asked to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        socket = self.run / "lab.sock"
        server = await asyncio.start_unix_server(self._serve, socket, limit=REQUEST_BYTES_MAX)
        starting = asyncio.create_task(self._start())
        await self._stopping.wait()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        # Agents first: they withdraw their requests while the manager listens, and it its circuits while the OCS does.
        agents = [program for name, program in self.programs.items() if name in self.topology.servers]
        switches = [self.programs.get(name) for name in self.topology.switches]
        managers = [program for name, program in self.programs.items() if name.startswith("manager")]
        for group in (agents, managers, [self.programs.get("etcd"), self.programs.get("ocs")], switches):
            await asyncio.gather(*(program.stop() for program in group if program), return_exceptions=True)
        server.close()
        socket.unlink(missing_ok=True)

    async def _say(self, **news: Any) -> None:
        async with self._more:
            self._news.append(news)
            self._more.notify_all()

    async def _start(self) -> None:
        try:
            await self._say(progress=f"network {self.topology.name}")
            # In this thread: Mininet is not made for others, and nothing has to be served before it is done.
            self.network.start()
            self._define()
            await self._start_programs()
            await self._say(ready=True)
        except (LabError, OSError, subprocess.SubprocessError) as error:
            await self._say(error=str(error))

    def _define(self) -> None:
        options, file = self.options, Path(self.options.topology)
        secure = options.certificates if options.secure else ""
        for number, switch in enumerate(self.topology.switches.values()):
            if switch.p4:
                interfaces = self.network.interfaces(switch.name)
                self.programs[switch.name] = p4switches.program(
                    switch, interfaces, number, options.p4_target, self.run, secure
                )
        if "ocs" in options.parts and self.topology.ocs:
            self.programs["ocs"] = processes.ocs_emulator(file, self.run, secure)
        if "manager" in options.parts:
            bound = ["--light-bound", p4switches.LIGHT_BOUND] if options.p4_target == p4switches.REFERENCE else []
            secured = [] if secure else processes.tls("--thrift-tls", options.certificates, "manager")
            extra = [*bound, *secured, *options.manager_options]
            for program in processes.managers(self.topology, file, self.run, extra, secure):
                self.programs[program.name] = program
        if "agents" in options.parts and not processes.agent_program().exists():
            raise LabError(f"{processes.agent_program()} is not built; run make build")
        extra = [*options.agent_options, *(("--seed", str(options.seed)) if options.seed is not None else ())]
        for server in self.topology.servers.values() if "agents" in options.parts else ():
            host = self.network.hosts[server.name]
            home = self.run / server.name
            (home / "objects").mkdir(parents=True, exist_ok=True)
            self._mount_store(server.name, home / "objects")
            secured = processes.tls("--manager-tls", options.certificates, server.name)
            if options.secure:
                secured += ["--security", "required"]
            disk = Path(options.to_disk) / server.name if options.to_disk else None
            if disk:
                disk.mkdir(mode=0o700, exist_ok=True)
                secured += ["--to-disk", str(disk)]
            self.programs[server.name] = processes.agent(
                self.topology, server, host.pid, self.run, options.quota, options.reserve, [*secured, *extra]
            )

    def _mount_store(self, server: str, folder: Path) -> None:
        """A tmpfs for objects, seen on that server only; of huge pages if the kernel has them for tmpfs.

        Received fragments land in fresh pages. With pages of 4 KiB, faulting them in costs more than all the rest.
        """
        for huge in (",huge=within_size", ""):
            options = f"size={self.options.quota},mode=700{huge}"
            mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
            if self.network.popen(server, mount, stderr=None if not huge else subprocess.DEVNULL).wait(10) == 0:
                return
        raise LabError(f"{server}: no tmpfs of {self.options.quota} for its object store (see what mount says above)")

    async def _start_programs(self) -> None:
        names = (*self.topology.switches, "ocs", "etcd", "manager")
        first = [self.programs[name] for name in names if name in self.programs]
        for program in first:
            await self._say(progress=f"starting {program.name}")
            await program.start(self._ended)
        await self._wait_for(readiness.listening(self.topology, self.programs))
        self.network.connect_controllers(
            self.options.certificates if self.options.secure else ""
        )  # a switch that is refused tries again a second later
        managers = [program for name, program in self.programs.items() if name.startswith("manager")]
        standbys = [program for program in managers if program not in first]
        for program in standbys:  # the first one leads
            await program.start(self._ended)
        first += standbys
        agents = [program for program in self.programs.values() if program not in first]
        if agents:
            await self._say(progress=f"starting {len(agents)} agents")
        for program in agents:
            await program.start(self._ended)
        await self._wait_for(readiness.working(self.topology, self.run, self.programs))

    async def _wait_for(self, conditions: list[readiness.Condition]) -> None:
        """Waits until every condition holds. Raises LabError if a program ends meanwhile, or at the bound."""
        loop = asyncio.get_running_loop()
        for condition in conditions:
            await self._say(progress=condition.name)
            deadline, pause_s = loop.time() + self.options.bound_s, 0.01
            while missing := await asyncio.to_thread(condition.missing):
                for program in self.programs.values():
                    if program.state.startswith("ended"):
                        raise LabError(
                            f"{program.name} {program.state}; the end of {program.log}:\n{program.log_tail()}"
                        )
                if loop.time() > deadline:
                    raise LabError(f"waited {self.options.bound_s:.0f} s for {condition.name}: {missing}")
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, 0.2)

    def _ended(self, program: processes.Program) -> None:
        print(f"{program.name} {program.state}; see {program.log}", file=sys.stderr, flush=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        operations: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "status": self._status,
            "kill": self._kill,
            "signal": self._signal,
            "start": self._start_one,
            "stop": self._stop,
        }
        try:
            while line := await reader.readline():
                try:
                    request = json.loads(line)
                    if request["op"] == "wait":
                        await self._tell(writer)
                        continue
                    answer = {"ok": await operations[request["op"]](request)}
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    answer = {"error": f"not a request of the lab: {type(error).__name__}: {error}"}
                except (LabError, OSError, OverflowError) as error:
                    answer = {"error": str(error)}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except ValueError:  # readline: the end of this line is nowhere near
            writer.write(b'{"error": "a request is longer than %d bytes"}\n' % REQUEST_BYTES_MAX)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        told = 0
        while not told or "progress" in self._news[told - 1]:
            async with self._more:
                while len(self._news) <= told:
                    await self._more.wait()
            writer.write(json.dumps(self._news[told]).encode() + b"\n")
            await writer.drain()
            told += 1

    def _named(self, request: dict[str, Any]) -> processes.Program:
        name = str(request["name"])
        if name not in self.programs:
            raise LabError(f"no program {name} in this lab; there are {', '.join(self.programs)}")
        return self.programs[name]

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            "topology": self.topology.name,
            "hosts": {name: host.pid for name, host in self.network.hosts.items()},
            "programs": {p.name: {"pid": p.pid, "state": p.state, "log": str(p.log)} for p in self.programs.values()},
        }

    async def _kill(self, request: dict[str, Any]) -> str:
        program = self._named(request)
        await program.stop(int(request.get("signal", signal.SIGKILL)))
        return program.state

    async def _signal(self, request: dict[str, Any]) -> int:
        program = self._named(request)
        if not program.pid:
            raise LabError(f"{program.name} does not run: {program.state}")
        os.kill(program.pid, int(request["signal"]))
        return program.pid

    async def _start_one(self, request: dict[str, Any]) -> int:
        program = self._named(request)
        await program.start(self._ended)
        return program.pid

    async def _stop(self, request: dict[str, Any]) -> bool:
        asyncio.get_running_loop().call_soon(self._stopping.set)
        return True


def main() -> None:
    given = json.loads(sys.argv[1])
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    try:
        supervisor = Supervisor(Options(**given))
    except (LabError, TopologyError) as error:
        sys.exit(str(error))
    asyncio.run(supervisor.main())


if __name__ == "__main__":
    main()
