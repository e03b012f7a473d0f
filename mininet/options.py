"""What `lab.Lab` asks of the supervisor inside; without Mininet, which only the inside needs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    """What `lab.Lab` asks of the supervisor; travels as JSON on its command line."""

    topology: str  # file
    run: str  # folder
    parts: tuple[str, ...] = ("ocs", "manager", "agents")
    quota: str = "4G"
    to_disk: str = ""  # folder on a disk: each agent keeps received objects in one of its own there
    # Memory each agent keeps ready: that of virtual machines is slow to come. A starting lab spends seconds on it.
    reserve: str = field(default_factory=lambda: os.environ.get("ROSTRUM_LAB_RESERVE", "128M"))
    core_links: str = "patch"
    p4_target: str = ""  # what plays P4 switches, if there are any
    bound_s: float = 30.0  # for each thing waited for
    manager_options: tuple[str, ...] = ()
    agent_options: tuple[str, ...] = ()
    certificates: str = ""  # folder of PEM files: manager and agents speak TLS; "": plain
    secure: bool = False  # `security: required`: certificates of a CA of the lab's own, unless `certificates` are given
    seed: int | None = None  # of every random choice of the agents
