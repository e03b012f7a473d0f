"""`rostrum preheat` and `rostrum mirror`: images and models on many servers before they are asked for."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import click

from . import hub, report
from . import preheat as preheating
from .agent import Agent
from .commands import JSON, TO, WAIT, Connect, which_agent
from .mirror import Mirror
from .oci import Layout
from .sync import ANSWER_WAIT_S
from .sync_commands import print_result
from .values import RostrumError

RETRY_S = 2.0  # for an agent that is away


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.command()
@click.argument("source")
@TO
@click.option("--into", type=click.Path(file_okay=False, path_type=Path),
              help="Here is a receiver: put what is offered into this layout (SOURCE oci) or hub's cache (SOURCE hf; "
              "cache: where the hub's client keeps it).")  # fmt: skip
@click.option("--name", help="What it is called there: registry.example/team/app[:tag], or ORG/NAME[@REVISION].")
@click.option("--dry-run", is_flag=True, help="Say what is lacking; nothing is sent.")
@click.option("--checksum", is_flag=True, help="Receivers check what they have, too.")
@click.option("--once", is_flag=True, help="With --into: end after one.")
@click.option("--wait", type=WAIT, help="For a receiver's answer (default 30s); with --into for an offer (forever).")
@JSON
@which_agent
def preheat(
    connect: Connect,
    source: str,
    receivers: tuple[str, ...],
    into: Path | None,
    name: str | None,
    dry_run: bool,
    checksum: bool,
    once: bool,
    wait: float | None,
    as_json: bool,
) -> None:
    """Put an image or a model on many servers: each blob that some lack goes once, those that are there do not.

    \b
      rostrum mirror /srv/images                        on h3 and h4: a registry; it stays
      rostrum preheat oci:build/app:v2 --to h3,h4       an OCI layout (skopeo copy ... oci:build/app:v2)
      rostrum preheat hf --into cache                   on h3 and h4; it stays
      rostrum preheat hf:ORG/NAME@main --to h3,h4       from the hub's cache here
      rostrum preheat hf:model/ --name ORG/NAME --to h3,h4

    SOURCE is oci:DIR[:TAG], hf:REPO[@REVISION] or hf:DIR. Every blob is checked by its digest before it counts; an
    image or revision is there when all of it is. The exit status is 0 only if every receiver has it.
    """
    names = [one.strip() for given in receivers for one in given.split(",") if one.strip()]
    if bool(names) == bool(into):
        raise click.UsageError("say --to SERVERS here, or --into DIR on a receiver")
    if into:
        if source not in (preheating.IMAGES, preheating.MODELS):
            raise click.UsageError("a receiver says of what kind: rostrum preheat oci --into DIR, or hf")
        place = hub.cache_folder() if source == preheating.MODELS and str(into) == "cache" else into
        with connect() as agent:
            preheating.take(agent, source, place, once=once, wait=wait, report=_say)
        return
    with connect() as agent:
        result = preheating.preheat(
            agent, preheating.offered(source, name), names, dry_run=dry_run, checksum=checksum,
            wait=wait or ANSWER_WAIT_S, report=(lambda text: None) if as_json else _say,
            watch=None if as_json else lambda handle: report.follow(handle.events(), phases=False),
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps({"server": agent.server, **result.as_dict()}, indent=1))
    else:
        print_result(result, dry_run)
    if not result.ok:
        sys.exit(1)


@click.command()
@click.argument("layout", type=click.Path(file_okay=False, path_type=Path))
@click.option("--listen", default="127.0.0.1:5055", show_default=True, metavar="ADDRESS:PORT", help="Port 0: any.")
@click.option("--only-serve", is_flag=True, help="Do not take what rostrum preheat offers.")
@which_agent
def mirror(connect: Connect, layout: Path, listen: str, only_serve: bool) -> None:
    """A registry for reading, beside the agent: LAYOUT's images, and those that rostrum preheat puts there.

    \b
      rostrum mirror /srv/images
      skopeo copy --src-tls-verify=false docker://127.0.0.1:5055/app:v2 ...

    For containerd, in /etc/containerd/certs.d/_default/hosts.toml (what is not here it gets where it did before):

    \b
      [host."http://127.0.0.1:5055"]
        capabilities = ["pull", "resolve"]
    """
    address, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) > 65535 or not address:
        raise click.UsageError(f"--listen {listen}: it is as 127.0.0.1:5055")
    try:
        server = Mirror(Layout(layout), address.strip("[]"), int(port))
    except OSError as error:
        raise click.ClickException(f"{listen}: {error.strerror}; is another registry there? (--listen)") from error
    with server:
        click.echo(f"serving {layout} at http://{address}:{server.server_port}", err=True)
        if only_serve:
            server.serve_forever()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        agent = connect()  # what is wrong at first is said; later the agent may be away, and images are served
        while True:
            try:
                with agent:
                    preheating.take(agent, preheating.IMAGES, layout, once=False, report=_say)
            except RostrumError as error:
                if not agent.closed:
                    raise
                _say(f"{error}; waiting for the agent")
            agent = _again(connect)


def _again(connect: Connect) -> Agent:
    while True:
        time.sleep(RETRY_S)
        try:
            return connect()
        except RostrumError:
            continue
