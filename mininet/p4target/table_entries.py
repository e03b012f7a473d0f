"""TableEntry, DirectCounterEntry and DirectMeterEntry: written and read (P4Runtime specification, 9.1 to 9.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r
from rostrum.lab.p4target.info import ActionBinding, Info, MatchBinding, Scope, TableBinding
from rostrum.lab.p4target.meters import Meter
from rostrum.lab.p4target.status import Code, Refused, decode, denied, encode, invalid, missing, unsupported
from rostrum.lab.p4target.tables import Entry, MatchElement, TableError

INSERT, MODIFY, DELETE = p4r.Update.Type.INSERT, p4r.Update.Type.MODIFY, p4r.Update.Type.DELETE
CODES = {
    "exists": Code.ALREADY_EXISTS,
    "missing": Code.NOT_FOUND,
    "full": Code.RESOURCE_EXHAUSTED,
    "invalid": Code.INVALID_ARGUMENT,
}


class TableEntries:
    def __init__(self, info: Info) -> None:
        self.info = info

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, kind: int, message: Any) -> None:
        binding = self.info.table(message.table_id)
        try:
            if message.is_const:
                raise invalid(f"table {binding.name}: is_const cannot be written")
            if message.is_default_action:
                self._write_default(kind, binding, message)
            else:
                self._write_entry(kind, binding, message)
        except TableError as error:
            raise Refused(CODES[error.kind], str(error)) from error

    def _write_default(self, kind: int, binding: TableBinding, message: Any) -> None:
        table = binding.table
        if kind != MODIFY:
            raise invalid(f"table {binding.name}: a default entry can only be modified")
        if message.match or message.priority:
            raise invalid(f"table {binding.name}: a default entry has no match and no priority")
        if binding.constant_default:
            raise denied(f"table {binding.name}: its default action is constant")
        if not message.HasField("action"):
            table.reset_default()
            return
        action, arguments = self._action(binding, message.action, default=True)
        self._check_direct(binding, message)
        new = table.set_default(action.index, arguments)
        self._describe(binding, new, message)

    def _write_entry(self, kind: int, binding: TableBinding, message: Any) -> None:
        table = binding.table
        if not binding.fields:
            raise invalid(f"table {binding.name} has no key, so it has its default entry only")
        match, priority = self.match(binding, message.match), self._priority(binding, message.priority)
        old = table.get(match, priority)
        if binding.constant or (old is not None and old.constant):
            if kind != MODIFY or message.HasField("action"):
                raise denied(f"table {binding.name}: its entries are constant")
            if old is None:
                raise missing(f"table {binding.name} has no such entry")
        if kind == DELETE:
            table.delete(match, priority)
            return
        self._check_direct(binding, message)
        if kind == MODIFY and not message.HasField("action"):
            if old is None:
                raise missing(f"table {binding.name} has no such entry")
            self._describe(binding, old, message)
            return
        if not message.HasField("action"):
            raise invalid(f"table {binding.name}: an entry needs an action")
        action, arguments = self._action(binding, message.action, default=False)
        change = table.add if kind == INSERT else table.modify
        self._describe(binding, change(match, action.index, arguments, priority), message)

    def _check_direct(self, binding: TableBinding, message: Any) -> None:
        """Refuses what the table does not have, before anything is changed."""
        if message.idle_timeout_ns:
            raise unsupported(f"table {binding.name}: this target has no idle timeouts")
        if message.HasField("counter_data") and not binding.counter:
            raise invalid(f"table {binding.name} has no direct counter")
        check_counts(message.counter_data)
        if message.HasField("meter_config"):
            if not binding.meter:
                raise invalid(f"table {binding.name} has no direct meter")
            rates(message.meter_config)

    def _describe(self, binding: TableBinding, entry: Entry, message: Any) -> None:
        """What an entry carries besides its action."""
        entry.metadata, entry.controller_metadata = message.metadata, message.controller_metadata
        if message.HasField("counter_data"):
            entry.packets, entry.octets = message.counter_data.packet_count, message.counter_data.byte_count
        if binding.meter:
            entry.meter = self._meter(binding, message.meter_config) if message.HasField("meter_config") else None

    def _meter(self, binding: TableBinding, config: Any) -> Meter:
        meter = self.info.pipeline.meters[self.info.direct_meters[binding.meter].preamble.name].new()
        meter.set(rates(config))
        return meter

    def _priority(self, binding: TableBinding, priority: int) -> int:
        if binding.prioritized and priority <= 0:
            raise invalid(f"table {binding.name}: an entry needs a priority above 0, the highest wins")
        if not binding.prioritized and priority:
            raise invalid(f"table {binding.name} has neither ternary nor range fields, so entries have no priority")
        return priority

    def _action(self, binding: TableBinding, message: Any, *, default: bool) -> tuple[ActionBinding, list[int]]:
        if message.WhichOneof("type") != "action":
            raise invalid(f"table {binding.name}: only plain actions, it has no action profile")
        action = binding.actions.get(message.action.action_id)
        name = self.info.action_name(message.action.action_id)
        if action is None:
            raise invalid(f"table {binding.name} has no action {name}")
        if action.scope == (Scope.TABLE_ONLY if default else Scope.DEFAULT_ONLY):
            place = "the default action" if default else "the action of an entry"
            raise denied(f"table {binding.name}: {name} cannot be {place}")
        values: dict[int, bytes] = {}
        for given in message.action.params:
            if given.param_id not in action.parameters or given.param_id in values:
                raise invalid(f"action {name}: parameter {given.param_id} is unknown or given twice")
            values[given.param_id] = given.value
        arguments = []
        for number, each, width in zip(action.parameters, action.names, action.widths_bits, strict=True):
            if number not in values:
                raise invalid(f"action {name}: parameter {each} is missing")
            arguments.append(decode(values[number], width, f"action {name}, parameter {each}"))
        return action, arguments

    def match(self, binding: TableBinding, fields: Any) -> list[MatchElement]:
        """A match in the order of the key; what is left out matches everything."""
        given: dict[int, Any] = {}
        known = {each.id for each in binding.fields}
        for each in fields:
            if each.field_id not in known or each.field_id in given:
                raise invalid(f"table {binding.name}: match field {each.field_id} is unknown or given twice")
            given[each.field_id] = each
        return [self._element(binding, each, given.get(each.id)) for each in binding.fields]

    def _element(self, binding: TableBinding, field: MatchBinding, given: Any) -> MatchElement:
        what, width = f"table {binding.name}, match field {field.name}", field.width_bits
        top = (1 << width) - 1
        if given is None:
            if field.kind == "exact":
                raise invalid(f"{what}: an exact field cannot be left out")
            return (0, top) if field.kind == "range" else (0, 0)
        wanted = "optional" if field.optional else field.kind
        if given.WhichOneof("field_match_type") != wanted:
            raise invalid(f"{what}: it is {wanted}, not {given.WhichOneof('field_match_type') or 'nothing'}")
        if wanted == "exact":
            return decode(given.exact.value, width, what)
        if wanted == "optional":
            return decode(given.optional.value, width, what), top
        if wanted == "lpm":
            value, length = decode(given.lpm.value, width, what), given.lpm.prefix_len
            if not 0 < length <= width or value & (top >> length):
                raise invalid(f"{what}: {value:#x}/{length} is no prefix; one that matches everything is left out")
            return value, length
        if wanted == "ternary":
            value, mask = decode(given.ternary.value, width, what), decode(given.ternary.mask, width, what)
            if not mask or value & ~mask:
                raise invalid(f"{what}: {value:#x} &&& {mask:#x}: masked bits are 0; what matches all is left out")
            return value, mask
        low, high = decode(given.range.low, width, what), decode(given.range.high, width, what)
        if low > high or (low, high) == (0, top):
            raise invalid(f"{what}: {low} ... {high} is no range; one that matches everything is left out")
        return low, high

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, message: Any) -> Iterator[Any]:
        for binding in self._selected(message.table_id):
            for entry in self._entries(binding, message):
                found = self.encode(binding, entry, default=message.is_default_action)
                if message.HasField("counter_data") and binding.counter:
                    found.counter_data.packet_count, found.counter_data.byte_count = entry.packets, entry.octets
                if message.HasField("meter_config") and binding.meter and entry.meter is not None:
                    found.meter_config.CopyFrom(config_of(entry.meter))
                yield p4r.Entity(table_entry=found)

    def _selected(self, number: int) -> list[TableBinding]:
        return [self.info.table(number)] if number else list(self.info.tables.values())

    def _entries(self, binding: TableBinding, message: Any) -> Iterator[Entry]:
        if message.is_default_action:
            if binding.table.miss.action >= 0:
                yield binding.table.miss
            return
        wanted = None
        if message.match and message.table_id:
            wanted = binding.table.canonical(self.match(binding, message.match))
        for (match, priority), entry in list(binding.table.entries.items()):
            if wanted is not None and match != wanted:
                continue
            if message.priority and priority != message.priority:
                continue
            if message.metadata and entry.metadata != message.metadata:
                continue
            if message.controller_metadata and entry.controller_metadata != message.controller_metadata:
                continue
            action = message.action.action.action_id
            if action and binding.by_index[entry.action].id != action:
                continue
            yield entry

    def encode(self, binding: TableBinding, entry: Entry, *, default: bool) -> Any:
        message = p4r.TableEntry(
            table_id=binding.id,
            priority=entry.priority,
            is_default_action=default,
            metadata=entry.metadata,
            controller_metadata=entry.controller_metadata,
            is_const=(binding.constant or entry.constant) if not default else binding.constant_default,
        )
        action = binding.by_index.get(entry.action)
        if action is not None:
            message.action.action.action_id = action.id
            for number, value in zip(action.parameters, entry.arguments, strict=True):
                message.action.action.params.add(param_id=number, value=encode(value))
        if not default:
            self._encode_match(binding, entry, message)
        return message

    def _encode_match(self, binding: TableBinding, entry: Entry, message: Any) -> None:
        for field, element in zip(binding.fields, entry.match, strict=True):
            top = (1 << field.width_bits) - 1
            if isinstance(element, int):
                message.match.add(field_id=field.id).exact.value = encode(element)
            elif field.kind == "range":
                if element != (0, top):
                    one = message.match.add(field_id=field.id).range
                    one.low, one.high = encode(element[0]), encode(element[1])
            elif element[1] and field.optional:
                message.match.add(field_id=field.id).optional.value = encode(element[0])
            elif element[1] and field.kind == "lpm":
                prefix = message.match.add(field_id=field.id).lpm
                prefix.value, prefix.prefix_len = encode(element[0]), element[1]
            elif element[1]:
                masked = message.match.add(field_id=field.id).ternary
                masked.value, masked.mask = encode(element[0]), encode(element[1])

    # -- direct resources -----------------------------------------------------------------------------------------

    def _direct(self, message: Any, kind: str) -> Iterator[tuple[TableBinding, Entry, bool]]:
        """The entries a DirectCounterEntry or DirectMeterEntry means."""
        entry = message.table_entry
        if entry.table_id and not getattr(self.info.table(entry.table_id), kind):
            raise invalid(f"table {self.info.table(entry.table_id).name} has no direct {kind}")
        found = False
        for binding in self._selected(entry.table_id):
            if getattr(binding, kind):
                for each in self._entries(binding, entry):
                    found = True
                    yield binding, each, entry.is_default_action
        if entry.match and not found:
            raise missing(f"table {self.info.table(entry.table_id).name} has no such entry")

    def _one(self, message: Any, kind: str) -> tuple[TableBinding, Entry]:
        binding = self.info.table(message.table_entry.table_id)
        if not getattr(binding, kind):
            raise invalid(f"table {binding.name} has no direct {kind}")
        if message.table_entry.is_default_action:
            return binding, binding.table.miss
        match = self.match(binding, message.table_entry.match)
        entry = binding.table.get(match, message.table_entry.priority)
        if entry is None:
            raise missing(f"table {binding.name} has no such entry")
        return binding, entry

    def read_direct_counter(self, message: Any) -> Iterator[Any]:
        for binding, entry, default in self._direct(message, "counter"):
            found = p4r.DirectCounterEntry(table_entry=self._key_only(binding, entry, default))
            found.data.packet_count, found.data.byte_count = entry.packets, entry.octets
            yield p4r.Entity(direct_counter_entry=found)

    def write_direct_counter(self, kind: int, message: Any) -> None:
        _, entry = self._one(message, "counter")
        only_modify(kind, "a direct counter")
        check_counts(message.data)
        if message.HasField("data"):
            entry.packets, entry.octets = message.data.packet_count, message.data.byte_count

    def read_direct_meter(self, message: Any) -> Iterator[Any]:
        for binding, entry, default in self._direct(message, "meter"):
            found = p4r.DirectMeterEntry(table_entry=self._key_only(binding, entry, default))
            if entry.meter is not None:
                found.config.CopyFrom(config_of(entry.meter))
            yield p4r.Entity(direct_meter_entry=found)

    def write_direct_meter(self, kind: int, message: Any) -> None:
        binding, entry = self._one(message, "meter")
        only_modify(kind, "a direct meter")
        entry.meter = self._meter(binding, message.config) if message.HasField("config") else None

    def _key_only(self, binding: TableBinding, entry: Entry, default: bool) -> Any:
        message = self.encode(binding, entry, default=default)
        for name in ("action", "metadata", "controller_metadata", "is_const"):
            message.ClearField(name)
        return message


def only_modify(kind: int, what: str) -> None:
    if kind != MODIFY:
        raise invalid(f"{what} can only be modified")


def check_counts(data: Any) -> None:
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid("a counter is not negative")


def rates(config: Any) -> list[tuple[int, int]]:
    """Committed and peak rate of a MeterConfig, checked."""
    values = [(config.cir, config.cburst), (config.pir, config.pburst)]
    if any(number < 0 for pair in values for number in pair):
        raise invalid("a meter's rates and bursts are not negative")
    if config.cir > config.pir:
        raise invalid(f"a meter's committed rate ({config.cir}) is not above its peak rate ({config.pir})")
    return values


def config_of(meter: Meter) -> Any:
    found = meter.rates() or [(0, 0), (0, 0)]
    (cir, cburst), (pir, pburst) = found
    return p4r.MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst)
