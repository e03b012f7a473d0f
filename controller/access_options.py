"""Options of rostrum-manager about who may do what, how links are secured, and how the log is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

File = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True)
class SecurityOptions:
    """As the options below say. `thrift_tls`, `openflow_tls`: certificate and key of the manager, and the CA that signs
    those of agents and switches. `p4runtime_tls`: the CA that signs those of switches, and ours for them;
    `gnmi_tls`, `tl1_tls`: the same of OCSs.
    """

    agent_tokens: Path | None = None
    quotas: Path | None = None
    thrift_tls: tuple[Path, Path, Path] | None = None
    openflow_tls: tuple[Path, Path, Path] | None = None
    p4runtime_tls: tuple[Path, Path, Path] | None = None
    gnmi_tls: tuple[Path, Path, Path] | None = None
    tl1_tls: tuple[Path, Path, Path] | None = None
    log_format: str = "text"
    audit: Path | None = None


_OPTIONS = (
    click.option(
        "--agent-tokens",
        type=File,
        help="Agents must name themselves with a token of this file (rostrum manager token SERVER makes them).",
    ),
    click.option("--quotas", type=File, help="What tenants may hold at a time; read again on SIGHUP."),
    click.option(
        "--thrift-tls",
        type=(File, File, File),
        metavar="CERTIFICATE KEY CA",
        help="Agents connect by TLS only and show certificates that CA signed, each for its own server (PEM files).",
    ),
    click.option(
        "--openflow-tls",
        type=(File, File, File),
        metavar="CERTIFICATE KEY CA",
        help="Switches connect by TLS and show a certificate that CA signed and that names them (PEM files); "
        "plain OpenFlow is then not taken.",
    ),
    click.option(
        "--p4runtime-tls",
        type=(File, File, File),
        metavar="CERTIFICATE KEY CA",
        help="P4Runtime by TLS: the manager's certificate and key, and the CA that signed the switches' (PEM files).",
    ),
    click.option(
        "--gnmi-tls",
        type=(File, File, File),
        metavar="CERTIFICATE KEY CA",
        help="gNMI by TLS: the manager's certificate and key, and the CA that signed the OCSs' (PEM files).",
    ),
    click.option(
        "--tl1-tls",
        type=(File, File, File),
        metavar="CERTIFICATE KEY CA",
        help="TL1 by TLS, of OCSs whose entry in the topology file says `tls: true`: the same (PEM files).",
    ),
    click.option(
        "--audit",
        type=File,
        help="Append who asked for what, a JSON object a line; after a rotation, SIGHUP opens the file again.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Lines of text, or a JSON object a line.",
    ),
)


def security_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command these options; it gets them as `security`."""

    @wraps(command)
    def wrapped(
        agent_tokens: Path | None,
        quotas: Path | None,
        thrift_tls: tuple[Path, Path, Path] | None,
        openflow_tls: tuple[Path, Path, Path] | None,
        p4runtime_tls: tuple[Path, Path, Path] | None,
        gnmi_tls: tuple[Path, Path, Path] | None,
        tl1_tls: tuple[Path, Path, Path] | None,
        log_format: str,
        audit: Path | None,
        **others: Any,
    ) -> None:
        secured = (thrift_tls, openflow_tls, p4runtime_tls, gnmi_tls, tl1_tls)
        command(security=SecurityOptions(agent_tokens, quotas, *secured, log_format, audit), **others)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
