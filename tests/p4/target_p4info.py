"""The p4info of a program written with `Builder`, as p4c would make it. Ids count from 1 in each kind."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4i

from tests.p4.target_json import Builder

MATCH = {"exact": 2, "lpm": 3, "ternary": 4, "range": 5}
ACTION, TABLE, HEADER = 0x01000000, 0x02000000, 0x04000000
COUNTER, DIRECT_COUNTER, METER, DIRECT_METER = 0x12000000, 0x13000000, 0x14000000, 0x15000000
REGISTER, DIGEST = 0x16000000, 0x17000000


def p4info(built: Builder) -> Any:
    info, root = p4i.P4Info(), built.root
    for number, action in enumerate(root["actions"], 1):
        item = info.actions.add()
        name(item, ACTION + number, action["name"])
        for place, each in enumerate(action["runtime_data"], 1):
            item.params.add(id=place, name=each["name"], bitwidth=each["bitwidth"])
    tables = {}
    for table in (each for control in root["pipelines"] for each in control["tables"]):
        if table["default_entry"]["action_const"]:
            continue  # p4c hides the tables it makes of statements
        item = info.tables.add(size=table["max_size"], is_const_table="entries" in table)
        name(item, TABLE + len(info.tables), table["name"])
        tables[table["name"]] = item
        for place, key in enumerate(table["key"], 1):
            width = width_of(root, key["target"])
            item.match_fields.add(id=place, name=key["name"], bitwidth=width, match_type=MATCH[key["match_type"]])
        for number in table["action_ids"]:
            item.action_refs.add(id=ACTION + number + 1)
        if table["with_counters"]:
            counter = info.direct_counters.add(direct_table_id=item.preamble.id)
            name(counter, DIRECT_COUNTER + len(info.direct_counters), f"{table['name']}_counter")
            item.direct_resource_ids.append(counter.preamble.id)
    arrays(info, root, tables)
    for number, each in enumerate(root["learn_lists"], 1):
        item = info.digests.add()
        name(item, DIGEST + number, each["name"])
        item.type_spec.struct.name = each["name"]
        for element in each["elements"]:
            member = info.type_info.structs[each["name"]].members.add(name=element["value"][1])
            member.type_spec.bitstring.bit.bitwidth = width_of(root, element["value"])
    return info


def arrays(info: Any, root: dict[str, Any], tables: dict[str, Any]) -> None:
    for number, each in enumerate(root["counter_arrays"], 1):
        name(info.counters.add(size=each["size"]), COUNTER + number, each["name"])
    for number, each in enumerate(root["meter_arrays"], 1):
        if each["is_direct"]:
            item = info.direct_meters.add(direct_table_id=tables[each["binding"]].preamble.id)
            name(item, DIRECT_METER + number, each["name"])
        else:
            name(info.meters.add(size=each["size"]), METER + number, each["name"])
    for number, each in enumerate(root["register_arrays"], 1):
        item = info.registers.add(size=each["size"])
        name(item, REGISTER + number, each["name"])
        item.type_spec.bitstring.bit.bitwidth = each["bitwidth"]


def name(item: Any, identity: int, text: str) -> None:
    item.preamble.id, item.preamble.name, item.preamble.alias = identity, text, text


def width_of(root: dict[str, Any], target: list[str]) -> int:
    [kind] = [each["header_type"] for each in root["headers"] if each["name"] == target[0]]
    [fields] = [each["fields"] for each in root["header_types"] if each["name"] == kind]
    return 1 if target[1] == "$valid$" else next(each[1] for each in fields if each[0] == target[1])


def controller_header(info: Any, text: str, *fields: tuple[str, int]) -> None:
    """`packet_in` or `packet_out`."""
    item = info.controller_packet_metadata.add()
    name(item, HEADER + len(info.controller_packet_metadata), text)
    for place, (each, width) in enumerate(fields, 1):
        item.metadata.add(id=place, name=each, bitwidth=width)
