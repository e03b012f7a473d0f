"""Command line of the P4 reference target: simple_switch_grpc's, as far as it goes."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path

import grpc
from finsy.proto import p4i, p4r
from google.protobuf import text_format
from rostrum.lab.p4target.forwarder import Forwarder
from rostrum.lab.p4target.interfaces import Interface
from rostrum.lab.p4target.service import Service, serve
from rostrum.lab.p4target.status import Refused
from rostrum.lab.p4target.switch import DROP_PORT, Switch

LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
THREAD_SWITCH_S = 0.001  # how long a thread of gRPC's may wait for the forwarding one

log = logging.getLogger("p4target")


def main() -> int:
    options = parse(sys.argv[1:])
    logging.basicConfig(level=LEVELS[options.log_level], format="%(asctime)s %(levelname)s %(message)s")
    sys.setswitchinterval(THREAD_SWITCH_S)
    try:
        return run(options)
    except (OSError, ValueError, text_format.ParseError) as error:
        print(f"p4target: {error}", file=sys.stderr)
    except Refused as refused:
        print(f"p4target: {refused.text}", file=sys.stderr)
    return 1


def parse(fields: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="p4target",
        description="Runs a P4 program (BMv2 JSON) on network interfaces, controlled by P4Runtime. Slow; for labs and "
        "tests. The options are simple_switch_grpc's; `--` before some of them is accepted as there.",
    )
    parser.add_argument("-i", "--interface", action="append", default=[], metavar="PORT@INTERFACE", type=interface)
    parser.add_argument("--device-id", type=int, default=0, help="of P4Runtime (default 0)")
    parser.add_argument(
        "--grpc-server-addr", "--grpc", default="127.0.0.1:9559", metavar="ADDRESS", dest="address",
        help="in gRPC's notation: 127.0.0.1:9559 (default), unix:/path",
    )  # fmt: skip
    parser.add_argument("--grpc-server-ssl", action="store_true", help="P4Runtime by TLS, with these PEM files")
    parser.add_argument("--grpc-server-cacert", type=Path, metavar="FILE", help="who signs controllers' certificates")
    parser.add_argument("--grpc-server-cert", type=Path, metavar="FILE", help="our certificate chain")
    parser.add_argument("--grpc-server-key", type=Path, metavar="FILE", help="its key")
    parser.add_argument(
        "--grpc-server-with-client-auth", action="store_true", help="controllers must show certificates"
    )
    parser.add_argument("--cpu-port", type=int, help="packets to and from controllers go over it")
    parser.add_argument("--drop-port", type=int, default=DROP_PORT, help="default 511")
    parser.add_argument("--priority-queues", type=int, default=8, help="at each port (default 8); the highest first")
    parser.add_argument("--queue-depth", type=int, default=1000, help="packets in each queue (default 1000)")
    parser.add_argument("--no-p4", action="store_true", help="without a program until a controller sends one")
    parser.add_argument("--p4", type=Path, metavar="JSON", help="the program to begin with")
    parser.add_argument("--p4info", type=Path, metavar="FILE", help="its p4info, as text")
    parser.add_argument("--log-level", "-L", choices=LEVELS, default="info")
    parser.add_argument("--log-console", action="store_true", help="accepted; the log is always on stderr")
    parser.add_argument("--thrift-port", type=int, help="accepted; there is no Thrift server")
    options = parser.parse_args([word for word in fields if word != "--"])
    numbers = [port for port, _ in options.interface]
    if len(set(numbers)) < len(numbers):
        parser.error("the same port twice")
    if options.no_p4 and options.p4 is not None:
        parser.error("either --no-p4 or --p4")
    if (options.p4 is None) != (options.p4info is None):
        parser.error("--p4 and --p4info belong together")
    if options.grpc_server_ssl and not (options.grpc_server_cert and options.grpc_server_key):
        parser.error("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
    if options.grpc_server_with_client_auth and not options.grpc_server_cacert:
        parser.error("--grpc-server-with-client-auth needs --grpc-server-cacert")
    if options.priority_queues < 1 or options.queue_depth < 1:
        parser.error("at least one queue, of at least one packet")
    if options.cpu_port in numbers or options.cpu_port in (0, options.drop_port):
        parser.error("the CPU port is a port of its own, neither 0 nor the drop port")
    return options


def interface(text: str) -> tuple[int, str]:
    number, mark, name = text.partition("@")
    if not mark or not number.isdigit() or not name or int(number) > 0x1FF:
        raise argparse.ArgumentTypeError(f"{text!r} is not PORT@INTERFACE, such as 1@s1-eth1")
    return int(number), name


def configuration(program: Path, info: Path) -> p4r.ForwardingPipelineConfig:
    p4info = text_format.Parse(info.read_text(), p4i.P4Info())
    return p4r.ForwardingPipelineConfig(p4info=p4info, p4_device_config=program.read_bytes())


def credentials(options: argparse.Namespace) -> grpc.ServerCredentials | None:
    """Raises OSError, ValueError."""
    if not options.grpc_server_ssl:
        return None
    pair = options.grpc_server_key.read_bytes(), options.grpc_server_cert.read_bytes()
    root = options.grpc_server_cacert.read_bytes() if options.grpc_server_cacert else None
    return grpc.ssl_server_credentials([pair], root, options.grpc_server_with_client_auth)


def run(options: argparse.Namespace) -> int:
    switch = Switch(queues=options.priority_queues, queue_depth=options.queue_depth, drop_port=options.drop_port)
    interfaces = [Interface(port, name) for port, name in options.interface]
    forwarder = Forwarder(switch, interfaces)
    service = Service(switch, options.device_id, options.cpu_port)
    if options.p4 is not None:
        service.load(configuration(options.p4, options.p4info))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: forwarder.stop())
    server, port = serve(service, options.address, credentials(options))
    address = options.address
    if port and address.endswith(":0"):
        address = f"{address[:-2]}:{port}"
    told = " ".join(f"{number}@{name}" for number, name in options.interface) or "none"
    print(f"p4target: ready: device {options.device_id}, P4Runtime at {address}, ports {told}", flush=True)
    try:
        forwarder.run()
    finally:
        server.stop(0.2).wait(2.0)
        service.close()
        log.info("device %d: %s", options.device_id, forwarder.summary())
        forwarder.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
