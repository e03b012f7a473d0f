"""CounterEntry, MeterEntry and RegisterEntry: written and read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from finsy.proto import p4r
from rostrum.lab.p4target.info import Info, of
from rostrum.lab.p4target.status import beyond, decode, encode, invalid, unsupported
from rostrum.lab.p4target.table_entries import check_counts, config_of, only_modify, rates


class ArrayEntries:
    def __init__(self, info: Info) -> None:
        self.info = info

    @staticmethod
    def _indexes(message: Any, size: int, name: str) -> Sequence[int]:
        """The index a message names; all of them, if it names none."""
        if not message.HasField("index"):
            return range(size)
        index = message.index.index
        if index < 0:
            raise invalid(f"{name}: index {index} is negative")
        if index >= size:
            raise beyond(f"{name}: index {index} is beyond its size {size}")
        return (index,)

    @staticmethod
    def _selected(items: dict[int, Any], number: int, kind: str) -> list[Any]:
        return [of(items, number, kind)] if number else list(items.values())

    # -- counters -----------------------------------------------------------------------------------------------

    def write_counter(self, kind: int, message: Any) -> None:
        item = of(self.info.counters, message.counter_id, "counter")
        only_modify(kind, "a counter")
        check_counts(message.data)
        packets, octets = self.info.pipeline.counters[item.preamble.name]
        for index in self._indexes(message, len(packets), item.preamble.name):
            if message.HasField("data"):
                packets[index], octets[index] = message.data.packet_count, message.data.byte_count

    def read_counter(self, message: Any) -> Iterator[Any]:
        for item in self._selected(self.info.counters, message.counter_id, "counter"):
            packets, octets = self.info.pipeline.counters[item.preamble.name]
            for index in self._indexes(message, len(packets), item.preamble.name):
                data = p4r.CounterData(packet_count=packets[index], byte_count=octets[index])
                entry = p4r.CounterEntry(counter_id=item.preamble.id, index=p4r.Index(index=index), data=data)
                yield p4r.Entity(counter_entry=entry)

    # -- meters -------------------------------------------------------------------------------------------------

    def write_meter(self, kind: int, message: Any) -> None:
        item = of(self.info.meters, message.meter_id, "meter")
        only_modify(kind, "a meter")
        meters = self.info.pipeline.meters[item.preamble.name]
        values = rates(message.config) if message.HasField("config") else []
        for index in self._indexes(message, meters.size, item.preamble.name):
            meters.at(index).set(values)

    def read_meter(self, message: Any) -> Iterator[Any]:
        for item in self._selected(self.info.meters, message.meter_id, "meter"):
            meters = self.info.pipeline.meters[item.preamble.name]
            for index in self._indexes(message, meters.size, item.preamble.name):
                entry = p4r.MeterEntry(meter_id=item.preamble.id, index=p4r.Index(index=index))
                if meters.configured(index):
                    entry.config.CopyFrom(config_of(meters.at(index)))
                yield p4r.Entity(meter_entry=entry)

    # -- registers ----------------------------------------------------------------------------------------------

    @staticmethod
    def _width(item: Any) -> int:
        if item.type_spec.WhichOneof("type_spec") != "bitstring" or not item.type_spec.bitstring.HasField("bit"):
            raise unsupported(f"register {item.preamble.name}: only registers of bit<W> can be read and written")
        return int(item.type_spec.bitstring.bit.bitwidth)

    def write_register(self, kind: int, message: Any) -> None:
        item = of(self.info.registers, message.register_id, "register")
        only_modify(kind, "a register")
        width, cells = self._width(item), self.info.pipeline.registers[item.preamble.name]
        if message.data.WhichOneof("data") != "bitstring":
            raise invalid(f"register {item.preamble.name}: the data is no bit string")
        value = decode(message.data.bitstring, width, f"register {item.preamble.name}")
        for index in self._indexes(message, len(cells), item.preamble.name):
            cells[index] = value

    def read_register(self, message: Any) -> Iterator[Any]:
        for item in self._selected(self.info.registers, message.register_id, "register"):
            self._width(item)
            cells = self.info.pipeline.registers[item.preamble.name]
            for index in self._indexes(message, len(cells), item.preamble.name):
                entry = p4r.RegisterEntry(register_id=item.preamble.id, index=p4r.Index(index=index))
                entry.data.bitstring = encode(cells[index])
                yield p4r.Entity(register_entry=entry)
