"""The compiled P4 program that switches of ours run: what is pushed, and how a running one is known again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from finsy import P4Schema
from finsy.proto import p4i, p4r
from google.protobuf import text_format
from rostrum.controller.core.model import SouthboundError

PROGRAM = "tor"  # one program for all roles
# In the tree and in an installed distribution alike: the folder is the package rostrum.p4.
FOLDER = Path(__file__).resolve().parents[3] / "p4src" / "build"
INSTALLED = Path(__file__).resolve().parents[3] / "p4" / "build"
COOKIE_BYTES = 8


@dataclass(frozen=True)
class Pipeline:
    """A program and its p4info. `cookie` is the digest of both: a switch that reports it runs exactly this."""

    name: str
    schema: P4Schema
    p4info: p4i.P4Info
    device_config: bytes
    cookie: int

    def config(self) -> p4r.ForwardingPipelineConfig:
        return p4r.ForwardingPipelineConfig(
            p4info=self.p4info,
            p4_device_config=self.device_config,
            cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=self.cookie),
        )


def load(folder: Path | None = None, program: str = PROGRAM) -> Pipeline:
    """The program in `folder` (default: as it comes with rostrum). Raises SouthboundError saying what is missing."""
    where = folder or (FOLDER if FOLDER.is_dir() else INSTALLED)
    try:
        device_config = (where / f"{program}.json").read_bytes()
        text = (where / f"{program}.p4info.txtpb").read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SouthboundError(
            f"the P4 program {program} cannot be read: {error}; `make p4` compiles it (docs/p4.md)"
        ) from error
    return parse(program, text, device_config, str(where))


def parse(program: str, p4info_text: str, device_config: bytes, source: str = "") -> Pipeline:
    """A pipeline from its two artefacts. Raises SouthboundError."""
    p4info = p4i.P4Info()
    try:
        text_format.Parse(p4info_text, p4info)
        schema = P4Schema(p4info, device_config)
    except (text_format.ParseError, ValueError, KeyError) as error:
        raise SouthboundError(f"the p4info of {program} in {source} is not usable: {str(error)[:200]}") from error
    return Pipeline(program, schema, p4info, device_config, _cookie(p4info, device_config))


def _cookie(p4info: p4i.P4Info, device_config: bytes) -> int:
    digest = hashlib.sha256(p4info.SerializeToString(deterministic=True))
    digest.update(device_config)
    return int.from_bytes(digest.digest()[:COOKIE_BYTES], "big") or 1
