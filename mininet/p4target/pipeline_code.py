"""Generates the module that forwards packets: functions `ingress` and `egress`.

    ingress(data, port)                 parser, checksums, ingress control, then `enqueue` for every copy
    egress(port, rid, shared, queued)   egress control, checksums, deparser: the frame, or None if it is dropped

All state of a packet is in local variables (expressions.py). What crosses from ingress to egress, through the queues,
is the tuple `shared`.
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

NORMAL, REPLICATED = 0, 5  # v1model's instance_type
ALWAYS_SHARED = ("data", "pos", "length")
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
        in_egress = egress.variables()
        if self._required("packet_length") in in_egress:
            in_egress.add("plen")
        shared = sorted(name for name in in_egress - begun if not name.startswith("m") or name in inside)
        before = parser.variables() | ingress.variables() | set(shared) | self._ingress_variables() | {"plen"}
        out = Source()
        self._write_ingress(out, before, shared, parser, ingress)
        self._write_egress(out, shared, sorted(in_egress - set(shared) - begun), egress)
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
        return {variable for name in names if (variable := self._standard(name))}

    # -- bodies -------------------------------------------------------------------------------------------------

    def _ingress_control(self, out: Source) -> None:
        actions = ActionCode(self.program, self.translate, out)
        ControlCode(self.program.ingress, self.translate, actions, out).write()
        out.line("")
        for learn in self.program.learn_lists.values():
            with construct(f"learn list {learn.name}"), out.block(f"if digest == {learn.id}:"):
                out.line(f"learn({learn.id}, {self._sample(learn.elements)})")

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
        with out.block(f"if {self._required('egress_spec')} == DROP_PORT:"):
            out.line("dropped('egress')")
            out.line("return None")
        update_checksums(self.translate, out)
        out.line("head = b''")
        for name in self.program.deparser_order:
            header = self.program.headers[name]
            with out.block(f"if v{header.index}:"):
                out.line(f"head += h{header.index}.to_bytes({header.width_bytes}, 'big')")
        out.line("return head + data[pos:]")

    # -- functions ------------------------------------------------------------------------------------------------

    def _begin(self, out: Source, variables: set[str]) -> None:
        self._clear(out, variables)
        out.line("size = plen = len(data)")

    @staticmethod
    def _clear(out: Source, variables: Iterable[str]) -> None:
        """Variables as they are before anything happens to a packet."""
        for first, value in (("h", "0"), ("v", "False"), ("m", "0")):
            if names := sorted(name for name in variables if name.startswith(first)):
                out.line(f"{' = '.join(names)} = {value}")

    def _write_ingress(
        self, out: Source, variables: set[str], shared: list[str], parser: Source, control: Source
    ) -> None:
        with out.block("def ingress(data, port):"):
            self._begin(out, variables)
            out.line("length = size")
            out.line(f"{self._required('ingress_port')} = port")
            out.line(f"{self._required('packet_length')} = size")
            out.line(f"{self._required('instance_type')} = {NORMAL}")
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
            out.line("digest = 0")
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
                out.line(f"replicate({group}, {priority}, {self._tuple(shared)})")
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
            out.lines(body.text.splitlines())

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
