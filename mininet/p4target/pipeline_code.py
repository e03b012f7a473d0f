"""Generates the module that forwards packets: functions `ingress`, `egress` and `reparse`.

    ingress(data, port, kind, kept, passes)   parser, checksums, ingress control, then `enqueue` for every copy
    egress(port, rid, shared, queued)         egress control, checksums, deparser: the frame, or None if it is dropped
    reparse(data, port, kept, passes)         the state in which an ingress clone begins its egress

All state of a packet is in local variables (expressions.py). What crosses from ingress to egress, through the queues,
is the tuple `shared`. `kept`: metadata preserved over resubmission, recirculation or cloning, (field list, values) or
None.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rostrum.lab.p4target.action_code import ActionCode
from rostrum.lab.p4target.checksum_code import update_checksums, verify_checksums
from rostrum.lab.p4target.control_code import ControlCode
from rostrum.lab.p4target.expressions import Data, Translator
from rostrum.lab.p4target.parser_code import ParserCode
from rostrum.lab.p4target.program import Program, ProgramError, construct
from rostrum.lab.p4target.source import Source

NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 0, 1, 2, 4, 5, 6
NOT_TRUNCATED = "0x40000000"
ALWAYS_SHARED = ("data", "pos", "length", "passes")
QUEUE_FIELDS = ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth", "qid")


class PipelineCode:
    def __init__(self, program: Program, drop_port: int) -> None:
        self.program, self.drop_port = program, drop_port
        self.translate = Translator(program)
        for name in ("ingress_port", "packet_length", "instance_type", "egress_spec", "egress_port"):
            if program.standard(f"standard_metadata.{name}") is None:
                raise ProgramError(f"headers: standard_metadata.{name} is missing")

    def text(self) -> str:
        parser, ingress, egress = Source(), Source(), Source()
        with construct("parser"):
            actions = ActionCode(self.program, self.translate, parser)
            ParserCode(self.program, self.translate, parser, actions.primitive).write()
        with construct("ingress"):
            self._ingress_control(ingress)
        with construct("egress"):
            self._egress_body(egress)
        inside = parser.variables() | ingress.variables() | self._ingress_variables() | {"plen"}
        begun = self._begun_in_egress()
        in_egress = egress.variables() | ({"trunc"} & inside)
        if self._required("packet_length") in in_egress:
            in_egress.add("plen")
        shared = sorted(name for name in in_egress - begun if not name.startswith("m") or name in inside)
        before = parser.variables() | ingress.variables() | set(shared) | self._ingress_variables() | {"plen"}
        out = Source()
        self._write_ingress(out, before, shared, parser, ingress)
        self._write_egress(out, shared, sorted(in_egress - set(shared) - begun), egress)
        if self._uses("clone_ingress_pkt_to_egress"):
            self._write_reparse(out, before, shared, parser)
        return out.text

    # -- names --------------------------------------------------------------------------------------------------

    def _standard(self, name: str) -> str | None:
        return self.translate.standard(name)

    def _required(self, name: str) -> str:
        found = self._standard(f"standard_metadata.{name}")
        assert found is not None
        return found

    def _begun_in_egress(self) -> set[str]:
        """Variables that egress sets before anything else."""
        names = [f"queueing_metadata.{name}" for name in QUEUE_FIELDS]
        names += ["intrinsic_metadata.egress_rid", "intrinsic_metadata.egress_global_timestamp"]
        names += ["standard_metadata.egress_port", "standard_metadata.egress_spec", "standard_metadata.packet_length"]
        return {variable for name in names if (variable := self._standard(name))}

    def _ingress_variables(self) -> set[str]:
        """Variables that ingress sets by itself."""
        names = ["standard_metadata.parser_error", "standard_metadata.checksum_error"]
        names += ["intrinsic_metadata.ingress_global_timestamp", "intrinsic_metadata.mcast_grp"]
        names += [f"standard_metadata.{name}" for name in ("ingress_port", "packet_length", "instance_type")]
        names += ["standard_metadata.egress_spec", "intrinsic_metadata.priority"]
        return {variable for name in names if (variable := self._standard(name))} | self._kept_variables()

    def _kept_variables(self) -> set[str]:
        return {self._place(target) for fields in self.program.field_lists.values() for target in fields}

    def _place(self, target: tuple[str, str]) -> str:
        with construct("field_lists"):
            return self.translate.place(target)

    # -- bodies -------------------------------------------------------------------------------------------------

    def _ingress_control(self, out: Source) -> None:
        actions = ActionCode(self.program, self.translate, out)
        ControlCode(self.program.ingress, self.translate, actions, out).write()
        out.line("")
        if self._uses("clone_ingress_pkt_to_egress"):
            with out.block("if cloned is not None:"):
                out.line(f"clone(cloned[0], reparse(data, port, {self._kept('cloned[1]')}, passes + 1), passes)")
        for learn in self.program.learn_lists.values():
            with construct(f"learn list {learn.name}"), out.block(f"if digest == {learn.id}:"):
                out.line(f"learn({learn.id}, {self._sample(learn.elements)})")
        if self._uses("resubmit"):
            with out.block("if resubmitted:"):
                out.line(f"again(data, port, {RESUBMITTED}, {self._kept('resubmitted')}, passes + 1)")
                out.line("return")

    def _sample(self, elements: list[dict[str, Any]]) -> str:
        """A digest's values, each as the bit pattern of its width."""
        sources = []
        for element in elements:
            data = self.translate.data(element)
            if data.bits is None:
                info = self.program.field_of(*element["value"])
                data = Data(f"({data.source} & {info.mask})", info.width_bits)
            sources.append(data.source)
        return "(" + "".join(f"{source}, " for source in sources) + ")"

    def _egress_body(self, out: Source) -> None:
        actions = ActionCode(self.program, self.translate, out)
        ControlCode(self.program.egress, self.translate, actions, out).write()
        out.line("")
        if self._uses("clone_egress_pkt_to_egress"):
            with out.block("if cloned is not None:"):
                out.line("CLONE")
        with out.block(f"if {self._required('egress_spec')} == DROP_PORT:"):
            out.line("dropped('egress')")
            out.line("return None")
        update_checksums(self.translate, out)
        out.line("head = b''")
        for name in self.program.deparser_order:
            header = self.program.headers[name]
            with out.block(f"if v{header.index}:"):
                out.line(f"head += h{header.index}.to_bytes({header.width_bytes}, 'big')")
        out.line("frame = head + data[pos:]")
        if self._uses("recirculate"):
            with out.block("if recirculated:"):
                port = self._required("ingress_port")
                out.line(f"again(frame, {port}, {RECIRCULATED}, {self._kept('recirculated')}, passes + 1)")
                out.line("return None")
        out.line("return frame[:trunc]" if self._uses("truncate") else "return frame")

    def _uses(self, primitive: str) -> bool:
        return any(item["op"] == primitive for action in self.program.actions.values() for item in action.primitives)

    def _kept(self, number: str) -> str:
        """The fields of the field list with the number in a variable, as `kept`."""
        source = "None"
        for identity, fields in self.program.field_lists.items():
            values = "".join(f"{self._place(target)}, " for target in fields)
            source = f"({identity}, ({values})) if {number} == {identity} else {source}"
        return f"({source})"

    # -- functions ------------------------------------------------------------------------------------------------

    def _begin(self, out: Source, variables: set[str]) -> None:
        self._clear(out, variables)
        out.line("size = plen = len(data)")

    @staticmethod
    def _clear(out: Source, variables: Iterable[str]) -> None:
        """Variables as they are before anything happens to a packet."""
        for first, value in (("h", "0"), ("v", "False"), ("m", "0"), ("x", "0"), ("t", NOT_TRUNCATED)):
            if names := sorted(name for name in variables if name.startswith(first)):
                out.line(f"{' = '.join(names)} = {value}")

    def _restore(self, out: Source) -> None:
        if not self.program.field_lists:
            return
        with out.block("if kept is not None:"):
            for number, fields in self.program.field_lists.items():
                if fields:
                    with out.block(f"if kept[0] == {number}:"):
                        out.line("".join(f"{self._place(target)}, " for target in fields) + "= kept[1]")

    def _write_ingress(
        self, out: Source, variables: set[str], shared: list[str], parser: Source, control: Source
    ) -> None:
        with out.block("def ingress(data, port, kind, kept, passes):"):
            self._begin(out, variables)
            out.line("length = size")
            out.line(f"{self._required('ingress_port')} = port")
            self._restore(out)
            out.line(f"{self._required('packet_length')} = size")
            out.line(f"{self._required('instance_type')} = kind")
            time = self._standard("intrinsic_metadata.ingress_global_timestamp")
            if time in control.variables() | parser.variables() | set(shared):
                out.line(f"{time} = clock_us() & 0xffffffffffff")
            out.lines(parser.text.splitlines())
            wanted = control.variables() | set(shared)
            if (variable := self._standard("standard_metadata.parser_error")) in wanted:
                out.line(f"{variable} = error")
            if (variable := self._standard("standard_metadata.checksum_error")) in wanted:
                verify_checksums(self.translate, out)
                out.line(f"{variable} = wrong")
            out.line("cloned = None")
            out.line("digest = resubmitted = 0")
            out.lines(control.text.splitlines())
            self._after_ingress(out, shared)

    def _tuple(self, shared: list[str]) -> str:
        return f"({', '.join([*ALWAYS_SHARED, *shared])})"

    def _after_ingress(self, out: Source, shared: list[str]) -> None:
        kind, port = self._required("instance_type"), self._required("egress_spec")
        priority = self._standard("intrinsic_metadata.priority") or "0"
        if group := self._standard("intrinsic_metadata.mcast_grp"):
            with out.block(f"if {group}:"):
                out.line(f"{kind} = {REPLICATED}")
                # As in BMv2, copies are whole whatever `truncate` said.
                whole = [NOT_TRUNCATED if name == "trunc" else name for name in shared]
                out.line(f"replicate({group}, {priority}, {self._tuple(whole)})")
                out.line("return")
        with out.block(f"if {port} == DROP_PORT:"):
            out.line("dropped('ingress')")
            out.line("return")
        out.line(f"{kind} = {NORMAL}")
        out.line(f"enqueue({port}, {priority}, 0, {self._tuple(shared)})")

    def _write_egress(self, out: Source, shared: list[str], own: list[str], body: Source) -> None:
        used = body.variables()
        with out.block("def egress(port, rid, shared, queued):"):
            out.line(f"{self._tuple(shared)} = shared")
            self._clear(out, own)
            out.line(f"{self._required('egress_port')} = port")
            out.line(f"{self._required('egress_spec')} = {(self.drop_port + 1) & self._spec_mask()}")
            if self._required("packet_length") in used:
                out.line(f"{self._required('packet_length')} = plen")
            if variable := self._standard("intrinsic_metadata.egress_rid"):
                out.line(f"{variable} = rid")
            if (variable := self._standard("intrinsic_metadata.egress_global_timestamp")) in used:
                out.line(f"{variable} = clock_us() & 0xffffffffffff")
            self._queue_fields(out, used)
            out.line("cloned = None")
            out.line("recirculated = 0")
            for line in body.text.splitlines():
                if line.strip() == "CLONE":
                    self._clone_in_egress(out, line, shared)
                else:
                    out.line(line)

    def _queue_fields(self, out: Source, used: set[str]) -> None:
        for place, name in enumerate(QUEUE_FIELDS):
            variable = self._standard(f"queueing_metadata.{name}")
            if variable and variable in used:
                info = self.program.field_of(*self.program.standard(f"queueing_metadata.{name}"))  # type: ignore[misc]
                out.line(f"{variable} = queued[{place}] & {info.mask}")

    def _spec_mask(self) -> int:
        target = self.program.standard("standard_metadata.egress_spec")
        assert target is not None
        return self.program.field_of(*target).mask

    def _clone_in_egress(self, out: Source, line: str, shared: list[str]) -> None:
        """Headers as they are; metadata as if new, but for the field list and the kind of packet."""
        indent = line[: len(line) - len(line.lstrip())]
        names = ["0" if name.startswith("m") else name for name in shared]
        names = [NOT_TRUNCATED if name == "trunc" else name for name in names]
        kind = self._required("instance_type")
        plain = [str(EGRESS_CLONE) if name == kind else value for name, value in zip(shared, names, strict=True)]
        out.line(f"{indent}copy = ({', '.join(['data', 'pos', 'length', 'passes + 1', *plain])})")
        for number, fields in self.program.field_lists.items():
            kept = {self._place(target) for target in fields} - {kind}
            values = [name if name in kept else value for name, value in zip(shared, plain, strict=True)]
            if values != plain:
                out.line(f"{indent}if cloned[1] == {number}:")
                out.line(f"{indent}    copy = ({', '.join(['data', 'pos', 'length', 'passes + 1', *values])})")
        out.line(f"{indent}clone(cloned[0], copy, passes)")

    def _write_reparse(self, out: Source, variables: set[str], shared: list[str], parser: Source) -> None:
        with out.block("def reparse(data, port, kept, passes):"):
            self._begin(out, variables)
            out.line("length = size")
            out.line(f"{self._required('ingress_port')} = port")
            out.lines(parser.text.splitlines())
            if names := sorted(name for name in variables if name.startswith("m")):
                out.line(f"{' = '.join(names)} = 0")
            self._restore(out)
            out.line(f"{self._required('instance_type')} = {INGRESS_CLONE}")
            out.line(f"return {self._tuple(shared)}")
