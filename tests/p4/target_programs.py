"""P4 programs that exercise the reference target, with entries and frames for them, and what BMv2 made of these.

python -m tests.p4.target_programs compile    where p4c is installed: programs/*.p4 -> *.json, *.p4info.txtpb
python -m tests.p4.target_programs record     where BMv2 is installed, as root: -> *.recorded.json
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from finsy.proto import p4i, p4r
from google.protobuf import text_format

from tests.p4.target_client import INSERT, Client

FOLDER = Path(__file__).parent / "programs"
NAMES = ("arithmetic", "lookups")
COMPILER = "p4c-bm2-ss"
PORTS = (1, 2, 3, 4)
SEED = 20260401
FRAMES = 120
MatchType = p4i.MatchField.MatchType

Update = tuple[int, Any]
Frame = tuple[int, bytes]


def program(name: str) -> str:
    return (FOLDER / f"{name}.json").read_text()


def p4info(name: str) -> Any:
    return text_format.Parse((FOLDER / f"{name}.p4info.txtpb").read_text(), p4i.P4Info())


def config(name: str) -> Any:
    return p4r.ForwardingPipelineConfig(p4info=p4info(name), p4_device_config=program(name).encode())


# -- compiling --------------------------------------------------------------------------------------------------------


def compiled(name: str) -> dict[str, str]:
    """What the compiler makes: file name -> text, without places in the source."""
    with tempfile.TemporaryDirectory() as folder:
        made, info = Path(folder) / "out.json", Path(folder) / "info.txtpb"
        command = [COMPILER, "--std", "p4-16", "--p4runtime-files", str(info), "-o", str(made), f"{name}.p4"]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0 and not done.stderr, done.stderr
        root = without(json.loads(made.read_text()), ("source_info", "program"))
        root["__meta__"]["compiler"] = "https://github.com/p4lang/p4c"
        return {
            f"{name}.json": json.dumps(root, separators=(",", ":")) + "\n",
            f"{name}.p4info.txtpb": info.read_text(),
        }


def without(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: without(inner, names) for key, inner in value.items() if key not in names}
    return [without(inner, names) for inner in value] if isinstance(value, list) else value


# -- what goes in -----------------------------------------------------------------------------------------------------


def frames(name: str, seed: int, count: int = FRAMES) -> list[Frame]:
    rng = random.Random(f"{name} {seed}")
    made: list[Frame] = []
    while len(made) < count:
        data = {"arithmetic": arithmetic, "lookups": lookups}[name](rng)
        if data[12:14] not in (b"\x81\x00", b"\x88\xa8"):  # the kernel would take it for a tag
            made.append((rng.choice(PORTS), data))
    return made


def arithmetic(rng: random.Random) -> bytes:
    edges = bytes(rng.choice((0, 1, 0x7F, 0x80, 0x81, 0xFF, rng.randrange(256))) for _ in range(19))
    return edges + rng.randbytes(rng.randrange(8))


def lookups(rng: random.Random) -> bytes:
    head = bytes((rng.choice((0, 1, 2, 3, 0x13)), rng.randrange(4)))
    fields = rng.choice((0, 1, 0x1234, 0xFF00)).to_bytes(2, "big")
    fields += rng.choice((0x0A000001, 0x0A000100, 0x0A010000, 0, 0xFFFFFFFF)).to_bytes(4, "big")
    return head + fields + b"\0\0" + bytes((rng.randrange(4),)) + rng.randbytes(10)


def updates(name: str, seed: int) -> list[Update]:
    """Entries for all tables and groups."""
    rng, info = random.Random(f"{name} {seed} entries"), p4info(name)
    made: list[Update] = []
    for table in info.tables:
        if table.match_fields and not table.is_const_table:
            keys = set()
            for number in range(12):
                entry = random_entry(rng, info, table, number + 1)
                key = str(entry.match)
                if key not in keys:
                    keys.add(key)
                    made.append((INSERT, entry))
    for number in (1, 2, 3):
        replicas = [
            p4r.Replica(egress_port=port, instance=instance)
            for port, instance in {(rng.choice(PORTS), rng.randrange(1, 4)) for _ in range(number)}
        ]
        made.append((INSERT, p4r.MulticastGroupEntry(multicast_group_id=number, replicas=replicas)))
    for digest in info.digests:
        timing = p4r.DigestEntry.Config(max_list_size=1)
        made.append((INSERT, p4r.DigestEntry(digest_id=digest.preamble.id, config=timing)))
    return made


def random_entry(rng: random.Random, info: Any, table: Any, priority: int) -> Any:
    """Values like those of the frames, so that some match."""
    small = (0, 1, 2, 3, 0x13)
    values = {8: small, 32: (0x0A000001, 0x0A000100, 0x0A010000, 0), 16: (0, 1, 0x1234, 0xFF00), 9: PORTS, 1: (0, 1)}
    entry = p4r.TableEntry(table_id=table.preamble.id)
    for field in table.match_fields:
        value = rng.choice(values[field.bitwidth])
        add_match(rng, entry, field, value)
    if any(
        field.match_type in (MatchType.TERNARY, MatchType.RANGE, MatchType.OPTIONAL) for field in table.match_fields
    ):
        entry.priority = priority
    chosen = rng.choice(table.action_refs).id
    action = next(each for each in info.actions if each.preamble.id == chosen)
    entry.action.action.action_id = action.preamble.id
    for parameter in action.params:
        value = rng.choice(PORTS) if parameter.bitwidth == 9 else rng.choice((1, 2, 4, 8, 120, 200))
        entry.action.action.params.add(param_id=parameter.id, value=bytes([value]))
    return entry


def add_match(rng: random.Random, entry: Any, field: Any, value: int) -> None:
    def text(number: int) -> bytes:
        return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")

    width, top = field.bitwidth, (1 << field.bitwidth) - 1
    if field.match_type == MatchType.EXACT:
        entry.match.add(field_id=field.id).exact.value = text(value)
    elif field.match_type == MatchType.LPM:
        if length := rng.choice((0, width // 4, width // 2, width * 3 // 4, width)):
            prefix = entry.match.add(field_id=field.id).lpm
            prefix.value, prefix.prefix_len = text(value & (top ^ (top >> length))), length
    elif field.match_type == MatchType.TERNARY:
        if mask := rng.choice((0, top, top & 0x0F0F, top & 0xF001)):
            masked = entry.match.add(field_id=field.id).ternary
            masked.value, masked.mask = text(value & mask), text(mask)
    elif field.match_type == MatchType.RANGE:
        between = entry.match.add(field_id=field.id).range
        between.low, between.high = text(value), text(min(top - 1, value + rng.randrange(3)))
    elif rng.random() < 0.7:
        # The key is masked. BMv2 masks entries too; here bits that a key never has match nothing.
        entry.match.add(field_id=field.id).optional.value = text(value & 0x0F)


# -- what comes out ---------------------------------------------------------------------------------------------------


def counters(client: Client, name: str) -> list[list[int]]:
    """Packets and bytes of every counter cell and every entry's counter, in an order of their own."""
    info = p4info(name)
    found = []
    for entry in client.read(p4r.CounterEntry()) if info.counters else []:
        index = (entry.counter_id, entry.index.index)
        found.append([*index, entry.data.packet_count, entry.data.byte_count])
    for counter in info.direct_counters:
        wanted = p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=counter.direct_table_id))
        for entry in client.read(wanted):
            key = int.from_bytes(b"".join(each.exact.value for each in entry.table_entry.match), "big")
            found.append([counter.preamble.id, key, entry.data.packet_count, entry.data.byte_count])
    return sorted(found)


def recorded(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.recorded.json").read_text())
    return content


def main() -> int:
    for name in NAMES:
        for file, text in compiled(name).items():
            (FOLDER / file).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
