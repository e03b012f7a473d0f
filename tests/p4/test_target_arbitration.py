"""P4Runtime of the reference target: who is primary, and what only the primary may do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
import uvloop
from finsy.proto import U128, p4r, p4r_grpc
from rostrum.lab.p4target.arbitration import STREAMS_MAX

from tests.p4.target_client import DEVICE, MODIFY, Failed, Session, SetAction, Target, running
from tests.p4.target_json import byte_header, to_port

OK, NOT_FOUND, ALREADY_EXISTS = 0, 5, 6


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with running(tmp_path) as made:
        yield made


def joined(target: Target, election_id: int | None, told: tuple[int, int] | None, role: str = "") -> Session:
    """A controller that introduced itself, and what it was told; None: that is not waited for."""
    session = Session(target.stub)
    session.arbitrate(election_id, role)
    if told is not None:
        assert session.told() == told
    return session


def test_first__is_primary_and_a_higher_one_takes_over(target: Target) -> None:
    one, two = joined(target, 5, (OK, 5)), joined(target, 4, (ALREADY_EXISTS, 5))
    three = joined(target, 6, (OK, 6))
    assert [session.told() for session in (one, two)] == [(ALREADY_EXISTS, 6), (ALREADY_EXISTS, 6)]
    two.arbitrate(7)
    assert [session.told() for session in (two, one, three)] == [(OK, 7), (ALREADY_EXISTS, 7), (ALREADY_EXISTS, 7)]


def test_primary_gone__backups_are_told_and_none_takes_its_place_by_itself(target: Target) -> None:
    one, two = joined(target, 5, (OK, 5)), joined(target, 4, (ALREADY_EXISTS, 5))
    one.cancel()
    assert two.told() == (NOT_FOUND, 5)
    two.arbitrate(4)
    assert two.told() == (NOT_FOUND, 5)
    two.arbitrate(5)
    assert two.told() == (OK, 5)


def test_primary_closes_its_side__it_is_gone(target: Target) -> None:
    one, two = joined(target, 5, (OK, 5)), joined(target, 4, (ALREADY_EXISTS, 5))
    one.close()
    assert two.told() == (NOT_FOUND, 5)
    assert one.ended() is None


def test_primary_steps_down(target: Target) -> None:
    one, two = joined(target, 5, (OK, 5)), joined(target, 3, (ALREADY_EXISTS, 5))
    one.arbitrate(4)
    assert [session.told() for session in (one, two)] == [(NOT_FOUND, 5), (NOT_FOUND, 5)]


def test_without_election_id__a_backup_for_ever(target: Target) -> None:
    watcher = joined(target, None, (NOT_FOUND, 0))
    joined(target, 0, (OK, 0))
    assert watcher.told() == (ALREADY_EXISTS, 0)


def test_large_election_ids(target: Target) -> None:
    joined(target, 1 << 64, (OK, 1 << 64))
    joined(target, (1 << 64) - 1, (ALREADY_EXISTS, 1 << 64))


def test_roles__have_primaries_of_their_own(target: Target) -> None:
    joined(target, 5, (OK, 5))
    joined(target, 5, (OK, 5), "telemetry")


def test_bad_introductions__end_the_stream(target: Target) -> None:
    stranger = Session(target.stub)
    stranger.arbitrate(1, device=DEVICE + 1)
    assert "NOT_FOUND: there is no device 4" in str(stranger.ended())
    one = joined(target, 5, (OK, 5))
    assert "INVALID_ARGUMENT: election id 5 is used" in str(joined(target, 5, None).ended())
    one.arbitrate(6, role="other")
    assert "FAILED_PRECONDITION: a stream stays with its device and role" in str(one.ended())


def test_too_many_controllers(target: Target) -> None:
    _sessions = [joined(target, number, (OK, number)) for number in range(STREAMS_MAX)]
    assert "RESOURCE_EXHAUSTED: there are 16 controllers already" in str(joined(target, 100, None).ended())


def test_only_the_primary_writes(target: Target) -> None:
    built = byte_header().statements("ingress", [to_port(1)])
    with pytest.raises(Failed, match=r"PERMISSION_DENIED: only the primary"):
        target.push(built)
    one = target.primary()
    with pytest.raises(Failed, match=r"FAILED_PRECONDITION: no forwarding pipeline"):
        target.write()
    target.push(built)
    target.write()
    two = joined(target, 9, (OK, 9))
    assert one.told() == (ALREADY_EXISTS, 9)
    for wrong in (lambda: target.push(built), target.write):
        with pytest.raises(Failed, match="PERMISSION_DENIED"):
            wrong()
    target.write(election_id=U128.encode(9))
    with pytest.raises(Failed, match=r"NOT_FOUND: there is no role 'nobody'"):
        target.write(role="nobody")
    with pytest.raises(Failed, match=r"NOT_FOUND: there is no device 99"):
        target.write(device_id=99)
    two.cancel()
    assert one.told() == (NOT_FOUND, 9)
    with pytest.raises(Failed, match="PERMISSION_DENIED"):
        target.write(election_id=U128.encode(9))


def test_pipeline__verify_save_commit(target: Target) -> None:
    one, two = (byte_header().statements("ingress", [to_port(port)]) for port in (1, 2))
    target.primary()
    assert not ask(target).HasField("config")
    with pytest.raises(Failed, match=r"NOT_FOUND: no config is saved"):
        target.set_pipeline(SetAction.COMMIT)
    target.push(one, SetAction.VERIFY)
    assert not ask(target).HasField("config")
    target.push(one, cookie=77)
    assert target.switch.inject(9, bytes(4))[0][0] == 1
    target.push(two, SetAction.VERIFY_AND_SAVE, cookie=78)
    assert target.switch.inject(9, bytes(4))[0][0] == 1
    # What is written now is for the saved program.
    target.write((1, p4r.MulticastGroupEntry(multicast_group_id=1, replicas=[{"port": b"\1"}])))
    assert target.switch.groups == {}
    target.set_pipeline(SetAction.COMMIT)
    assert target.switch.inject(9, bytes(4))[0][0] == 2
    assert target.switch.groups == {1: ((1, 0),)}
    assert ask(target).config.cookie.cookie == 78
    target.push(two, SetAction.RECONCILE_AND_COMMIT)
    assert target.switch.groups == {1: ((1, 0),)}
    with pytest.raises(Failed, match=r"UNIMPLEMENTED: of another program"):
        target.push(one, SetAction.RECONCILE_AND_COMMIT)
    target.push(two)
    assert target.switch.groups == {}
    assert target.read(p4r.MulticastGroupEntry()) == []


def ask(target: Target, kind: int = 0) -> p4r.GetForwardingPipelineConfigResponse:
    request = p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE, response_type=kind)
    return target.call("GetForwardingPipelineConfig", request)


def test_pipeline__is_given_back_in_parts(target: Target) -> None:
    built = byte_header().statements("ingress", [to_port(1)])
    target.primary()
    target.push(built, cookie=5)
    kinds = p4r.GetForwardingPipelineConfigRequest.ResponseType
    everything = ask(target).config
    assert everything.p4_device_config == built.text.encode()
    assert len(everything.p4info.actions) == 1
    only = ask(target, kinds.COOKIE_ONLY).config
    assert (only.cookie.cookie, only.p4_device_config, only.HasField("p4info")) == (5, b"", False)
    assert ask(target, kinds.P4INFO_AND_COOKIE).config.p4_device_config == b""
    assert not ask(target, kinds.DEVICE_CONFIG_AND_COOKIE).config.HasField("p4info")


def test_pipeline__that_cannot_run_is_refused_and_the_old_one_goes_on(target: Target) -> None:
    target.primary()
    target.push(byte_header().statements("ingress", [to_port(1)]))
    wrong = byte_header().statements("ingress", [{"op": "teleport", "parameters": []}])
    with pytest.raises(Failed, match=r"INVALID_ARGUMENT: this target cannot run the program: .*teleport: not supp"):
        target.push(wrong)
    info = p4r.ForwardingPipelineConfig().p4info
    info.tables.add().preamble.name = "ghost"
    with pytest.raises(Failed, match="p4info: table 'ghost' is not in the program"):
        target.push(byte_header(), info=info)
    with pytest.raises(Failed, match="INVALID_ARGUMENT: no action is set"):
        target.set_pipeline(SetAction.UNSPECIFIED)
    with pytest.raises(Failed, match="INVALID_ARGUMENT: a config is needed"):
        target.set_pipeline(SetAction.VERIFY)
    assert target.switch.inject(9, bytes(4))[0][0] == 1


def test_capabilities(target: Target) -> None:
    assert target.call("Capabilities", p4r.CapabilitiesRequest()).p4runtime_api_version.startswith("1.")
    with pytest.raises(Failed, match="NOT_FOUND"):
        target.call("Capabilities", p4r.CapabilitiesRequest(device_id=DEVICE + 1))


def test_write__of_nothing_known(target: Target) -> None:
    target.primary()
    target.push(byte_header())
    with pytest.raises(Failed) as caught:
        target.write((MODIFY, p4r.ActionProfileMember()), (0, p4r.TableEntry()), (MODIFY, p4r.TableEntry(table_id=9)))
    assert caught.value.code == "UNKNOWN"
    assert [code for code, _ in caught.value.details] == [12, 3, 3]


def test_a_client_on_uvloop__and_the_target_in_one_process(target: Target, tmp_path: Path) -> None:
    """The manager's loop is uvloop's; its gRPC is asyncio's, the target's has threads."""

    async def talk() -> tuple[str, int]:
        async with grpc.aio.insecure_channel(f"unix:{tmp_path / 'p4.sock'}") as channel:
            stub = p4r_grpc.P4RuntimeStub(channel)
            version = (await stub.Capabilities(p4r.CapabilitiesRequest(), timeout=10)).p4runtime_api_version
            stream = stub.StreamChannel()
            update = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=U128.encode(4))
            await stream.write(p4r.StreamMessageRequest(arbitration=update))
            answer = await asyncio.wait_for(stream.read(), 10)
            stream.cancel()
            return version, answer.arbitration.status.code

    assert uvloop.run(talk()) == ("1.5.0", OK)
