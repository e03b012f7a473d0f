"""Generates the ingress and egress controls: tables and conditionals one after the other.

A node stands after all nodes that lead to it. `n` is the number of the node to be executed next; a node that every way
leads to needs no question.
"""

from __future__ import annotations

from rostrum.lab.p4target.action_code import ActionCode
from rostrum.lab.p4target.expressions import Data, Translator, literal
from rostrum.lab.p4target.program import Action, Conditional, Control, Key, Table, construct
from rostrum.lab.p4target.source import Source

END = -1


class ControlCode:
    def __init__(self, control: Control, translate: Translator, actions: ActionCode, out: Source) -> None:
        self.control, self.translate, self.actions, self.out = control, translate, actions, out
        self.numbers = {name: number for number, name in enumerate(control.nodes)}

    def write(self) -> None:
        tables = [node for node in self.control.nodes.values() if isinstance(node, Table)]
        leaves = any(item["op"] == "exit" for table in tables for action in table.actions for item in action.primitives)
        if not leaves:
            self._nodes()
            return
        self.out.line("leave = False")
        with self.out.block("while True:"):
            self._nodes()
            self.out.line("break")

    def _nodes(self) -> None:
        furthest = 0
        for name, node in self.control.nodes.items():
            number = self.numbers[name]
            with construct(name):
                if furthest <= number:
                    self._node(node)
                else:
                    with self.out.block(f"if n == {number}:"):
                        self._node(node)
            for follower in node.next_nodes():
                furthest = max(furthest, len(self.numbers) if follower is None else self.numbers[follower])

    def _node(self, node: Table | Conditional) -> None:
        if isinstance(node, Table):
            self._table(node)
            return
        if node.next_true == node.next_false:
            self._go(node.next_true)
            return
        with self.out.block(f"if {self.translate.boolean(node.expression)}:"):
            self._go(node.next_true)
        with self.out.block("else:"):
            self._go(node.next_false)

    def _go(self, name: str | None) -> None:
        self.out.line(f"n = {END if name is None else self.numbers[name]}")

    # -- tables -------------------------------------------------------------------------------------------------

    def _table(self, table: Table) -> None:
        out, followers = self.out, table.next_nodes()
        if not table.keys and table.default_constant and table.default_action is not None:
            # p4c makes such tables of statements in a control.
            [action] = [action for action in table.actions if action.id == table.default_action]
            for place, value in enumerate(table.default_arguments):
                out.line(f"p{place} = {literal(value)}")
            self._called(action)
            self._go(table.next_miss if table.by_hit else table.next_by_action[action.id])
            return
        self._look_up(table)
        if table.meter or table.by_hit:
            out.line(f"hit = e is not T{table.index}.miss")
        if table.counted:
            out.line("e.packets += 1")
            out.line("e.octets += length")
        if table.meter:
            self._direct_meter(table)
        self._actions(table, each_goes=not table.by_hit and len(followers) > 1)
        if table.by_hit and len(followers) > 1:
            with out.block("if hit:"):
                self._go(table.next_hit)
            with out.block("else:"):
                self._go(table.next_miss)
        elif len(followers) == 1:
            self._go(next(iter(followers)))

    def _look_up(self, table: Table) -> None:
        index, keys = table.index, [self._key(key) for key in table.keys]
        if not keys:
            self.out.line(f"e = T{index}.miss")
            return
        self.out.line(f"k = {keys[0] if len(keys) == 1 else '(' + ', '.join(keys) + ')'}")
        exact = all(key.kind == "exact" for key in table.keys)
        self.out.line(f"e = F{index}(k) or T{index}.{'miss' if exact else 'look_up(k)'}")

    def _key(self, key: Key) -> str:
        data = self.translate.field(*key.target)
        source = data.source
        mask = (1 << key.width_bits) - 1
        if key.mask is not None and key.mask & mask != mask:
            source = f"({source} & {literal(key.mask)})"
        elif data.bits is None:
            source = f"({source} & {literal(mask)})"
        return source

    def _direct_meter(self, table: Table) -> None:
        assert table.meter is not None
        target = self.actions.program.meters[table.meter].target
        assert target is not None
        with self.out.block("if hit:"):
            self.out.line("t = e.meter.colour(length) if e.meter is not None else 0")
            self.out.lines(self.translate.assign({"type": "field", "value": list(target)}, Data("t", 2)))

    def _actions(self, table: Table, each_goes: bool) -> None:
        out = self.out
        busy = [(number, action) for number, action in enumerate(table.actions) if action.primitives or each_goes]
        if not busy:
            return
        out.line("a = e.action")
        for place, (number, action) in enumerate(busy):
            with out.block(f"{'el' if place else ''}if a == {number}:"):
                count = len(action.parameter_names)
                if count and action.primitives:
                    out.line(f"{', '.join(f'p{i}' for i in range(count))}{',' if count == 1 else ''} = e.arguments")
                self._called(action)
                if each_goes:
                    self._go(table.next_by_action[action.id])
        if each_goes:
            with out.block("else:"):
                self._go(table.next_miss)

    def _called(self, action: Action) -> None:
        self.actions.action(action)
        if any(item["op"] == "exit" for item in action.primitives):
            with self.out.block("if leave:"):
                self.out.line("break")
