"""`rostrum pki`: a CA of one's own, and certificates for managers, agents, switches and operators (docs/care.md).

Keys are made, and certificates signed, by the `openssl` command. A folder holds `ca.pem`, `ca.key`, and `NAME.pem` and
`NAME.key` of each holder (PEM); keys are for their owner alone (mode 0600).
"""

from __future__ import annotations

import ipaddress
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

OUT = Console(highlight=False)
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")
USAGE = {"agent": "clientAuth,serverAuth", "switch": "clientAuth,serverAuth", "manager": "serverAuth,clientAuth",
         "operator": "clientAuth", "reader": "clientAuth", "etcd": "clientAuth,serverAuth"}  # fmt: skip
FOLDER = click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path), default=Path("certificates"),
                      show_default=True, help="Where the CA is.")  # fmt: skip


def _openssl(*arguments: str | Path) -> str:
    """What it prints. Raises click.ClickException with its last words."""
    try:
        done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        raise click.ClickException("the command openssl is not here: apt install openssl") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise click.ClickException(f"openssl {arguments[0]}: {lines[-1]}")
    return done.stdout


def _is_there(key: Path) -> None:
    """On a full disk openssl writes nothing, and says that all is well. Raises click.ClickException."""
    if not key.stat().st_size:
        raise click.ClickException(f"openssl wrote nothing below {key.parent.parent}: is there room on its disk?")
    _openssl("pkey", "-in", key, "-noout")


def _checked(name: str) -> str:
    if not NAME.fullmatch(name) or name == "ca":
        raise click.UsageError(f"{name!r} is no name: letters, digits, dots, hyphens, underscores, at most 63; not ca")
    return name


def _valid_days(days: int) -> str:
    if not 1 <= days <= 36500:
        raise click.UsageError(f"--days {days}: from 1 to 36500")
    return str(days)


def _with_ca(folder: Path) -> Path:
    for file in ("ca.pem", "ca.key"):
        if not (folder / file).is_file():
            raise click.ClickException(f"{folder} holds no {file}: `rostrum pki init {folder}` makes a CA")
    return folder


@click.group()
def pki() -> None:
    """A CA of your own, and certificates for managers, agents, switches and operators.

    \b
      rostrum pki init certificates
      rostrum pki issue manager m1 --address 10.255.0.1
      rostrum pki issue agent h1
      rostrum pki list

    A certificate says what its holder may be (docs/care.md, "Roles"). Keep ca.key off the servers; certificates are
    short-lived: issue them again with --replace, and programs read them at their next connection.
    """


@pki.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--days", default=3650, show_default=True, help="How long the CA holds.")
@click.option("--name", default="rostrum CA", show_default=True, help="Its common name.")
def init(folder: Path, days: int, name: str) -> None:
    """Make a CA in FOLDER: ca.pem, which everybody gets, and ca.key, which nobody gets."""
    if not re.fullmatch(r"[\w .,-]{1,64}", name):
        raise click.UsageError(f"--name {name!r}: letters, digits, spaces, dots, commas, hyphens, at most 64")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in ("ca.pem", "ca.key"):
        if (folder / file).exists():
            raise click.ClickException(f"{folder / file} exists: what it signed would be worth nothing; move it away")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        key, certificate = Path(scratch, "key"), Path(scratch, "pem")
        _openssl("req", "-x509", *CURVE, "-days", _valid_days(days), "-subj", f"/CN={name}", "-keyout", key,
                 "-out", certificate, "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
                 "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip
        _is_there(key)
        _openssl("verify", "-CAfile", certificate, certificate)
        key.chmod(0o600)
        os.replace(key, folder / "ca.key")
        os.replace(certificate, folder / "ca.pem")
    click.echo(f"{folder}/ca.pem: a CA for {days} days; keep {folder}/ca.key where no server can read it")


@pki.command()
@click.argument("role", type=click.Choice(sorted(USAGE)))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--address", "addresses", multiple=True, help="IP address at which it is reached; may be repeated. A "
              "manager needs one, a P4 switch, and an OCS.")  # fmt: skip
@click.option("--also", multiple=True, metavar="NAME", help="A further name that it may speak as: another bridge of "
              "the same Open vSwitch; may be repeated.")  # fmt: skip
@click.option(
    "--tenant",
    help="The tenant of the topology file whose things alone an operator or reader may see, or whose servers "
    "alone speak with the agent.",
)
@click.option("--days", default=90, show_default=True, help="How long it holds.")
@click.option("--replace", is_flag=True, help="A new key and certificate instead of those that are there.")
@FOLDER
def issue(
    role: str,
    names: tuple[str, ...],
    addresses: tuple[str, ...],
    also: tuple[str, ...],
    tenant: str | None,
    days: int,
    replace: bool,
    folder: Path,
) -> None:
    """Issue NAME.pem and NAME.key for ROLE: NAME is the server or switch of the topology file, or a person.

    \b
      rostrum pki issue agent h1 h2 h3
      rostrum pki issue switch tor1 --address 10.255.0.21
      rostrum pki issue operator alice --days 30      # may change things; a reader may not
    """
    ca, valid = _with_ca(folder), _valid_days(days)
    if len(names) > 1 and (addresses or also):
        raise click.UsageError("--address and --also are of one NAME")
    if tenant and role not in ("agent", "operator", "reader"):
        raise click.UsageError("--tenant is of agents, operators and readers")
    more = [f"URI:rostrum:tenant:{_checked(tenant)}"] if tenant else []
    for name in map(_checked, names):
        _issue(ca, role, name, addresses, [name, *map(_checked, also)], valid, replace, more)


def _issue(
    ca: Path,
    role: str,
    name: str,
    addresses: Sequence[str],
    names: Sequence[str],
    valid: str,
    replace: bool,
    more: Sequence[str],
) -> None:
    if role == "manager" and not addresses:
        raise click.UsageError("a manager's certificate names the address that agents connect to: --address 10.255.0.1")
    try:
        reached = [f"IP:{ipaddress.ip_address(address)}" for address in addresses]
    except ValueError as error:
        raise click.UsageError(f"--address: {error}") from None
    key, certificate = ca / f"{name}.key", ca / f"{name}.pem"
    if certificate.exists() and not replace:
        raise click.ClickException(f"{certificate} exists; --replace makes a new one")
    who = ["URI:rostrum:manager"] if role == "manager" else [f"URI:rostrum:{role}:{one}" for one in names]
    alternatives = ",".join([*who, *more, *(f"DNS:{one}" for one in names), *reached])
    with tempfile.TemporaryDirectory(dir=ca) as scratch:
        asked, made, secret, said = (Path(scratch, what) for what in ("csr", "pem", "key", "extensions"))
        said.write_text(f"subjectAltName={alternatives}\nextendedKeyUsage={USAGE[role]}\nbasicConstraints=CA:FALSE\n"
                        "keyUsage=critical,digitalSignature\n")  # fmt: skip
        # With users etcd refuses clients whose certificates have a common name, as managers are.
        subject = f"/O=rostrum manager {name}" if role == "manager" else f"/CN={name}"
        _openssl("req", "-new", *CURVE, "-subj", subject, "-keyout", secret, "-out", asked)
        serial = str(int.from_bytes(os.urandom(16), "big") >> 1)
        _openssl("x509", "-req", "-in", asked, "-CA", ca / "ca.pem", "-CAkey", ca / "ca.key", "-set_serial", serial,
                 "-days", valid, "-extfile", said, "-out", made)  # fmt: skip
        _is_there(secret)
        _openssl("verify", "-CAfile", ca / "ca.pem", made)
        secret.chmod(0o600)
        if certificate.exists():  # it is good until its end, and who revokes the name means it, too
            _replaced(ca, name).mkdir(mode=0o700, parents=True, exist_ok=True)
            os.replace(certificate, _replaced(ca, name) / f"{serial}.pem")
        os.replace(secret, key)
        os.replace(made, certificate)
    click.echo(f"{certificate}, {key}: {name} as {role}, for {valid} days")


@pki.command()
@click.argument("name")
@FOLDER
def revoke(name: str, folder: Path) -> None:
    """Revoke NAME.pem, and what --replace put it in the place of: ca.pem then holds the list of those that are revoked,
    for everybody who reads it.

    Copy ca.pem to where the programs read it. Where `security: required` holds, managers and agents end what is open
    to NAME and refuse it, and the manager gives all others a new key at once: nothing has to be restarted.
    """
    ca, name = _with_ca(folder), _checked(name)
    newest, replaced = ca / f"{name}.pem", sorted(_replaced(ca, name).glob("*.pem"))
    if not newest.is_file() and not replaced:
        raise click.ClickException(f"{newest} is not there; `rostrum pki list --dir {folder}` shows what is")
    index, settings = ca / "revoked.txt", ca / "revoked.cnf"
    index.touch(mode=0o600)
    settings.write_text(f"[ca]\ndefault_ca=ours\n[ours]\ndatabase={index}\ndefault_md=sha256\n")
    said = ("-config", settings, "-cert", ca / "ca.pem", "-keyfile", ca / "ca.key")
    for one in (*replaced, *([newest] if newest.is_file() else [])):
        _openssl("ca", *said, "-revoke", one)
        os.replace(one, ca / f"{name}.revoked")
    _renew_list(ca, said)
    click.echo(f"{name} is revoked; copy {ca}/ca.pem to where programs read it")


def _replaced(ca: Path, name: str) -> Path:
    """Where the certificates of that name are that others took the place of."""
    return ca / "replaced" / name


def _renew_list(ca: Path, said: tuple[str | Path, ...]) -> None:
    with tempfile.TemporaryDirectory(dir=ca) as scratch:
        made, both = Path(scratch, "crl"), Path(scratch, "pem")
        _openssl("ca", *said, "-gencrl", "-crldays", "3650", "-out", made)
        certificate = (ca / "ca.pem").read_text().partition("-----BEGIN X509 CRL-----")[0]
        both.write_text(certificate + made.read_text())
        os.replace(both, ca / "ca.pem")


@pki.command("list")
@FOLDER
def list_certificates(folder: Path) -> None:
    """The certificates of a folder: for what, and until when."""
    rows = Table("file", "for", "until")
    for path in sorted(_with_ca(folder).glob("*.pem")):
        said = _openssl("x509", "-in", path, "-noout", "-enddate", "-dateopt", "iso_8601", "-ext", "subjectAltName")
        until = re.search(r"notAfter=(.*)", said)
        role = re.search(r"URI:rostrum:([\w:.-]+)", said)
        what = "CA" if path.name == "ca.pem" else role[1].replace(":", " ", 1) if role else "no role"
        rows.add_row(path.name, what, until[1] if until else "?")
    OUT.print(rows)


if __name__ == "__main__":
    pki()
