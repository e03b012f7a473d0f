"""Sets of message groups that overlap by design, in topology files."""

import pytest
from rostrum.topologies import TopologyError, load_text
from rostrum.topologies.loader import builtin_file

PLAIN = builtin_file("hybrid-4x2").read_text()


def test_sets_are_read() -> None:
    assert load_text(PLAIN).regions == ()
    assert load_text(PLAIN + 'regions: [["eu.*", us], [news]]\n').regions == (("eu.*", "us"), ("news",))


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ('[["eu.*", us], ["eu.quotes"]]', "eu.quotes is in another set, too, by eu.*"),
        ("[eu]", "is not a list"),
        ("[[]]", "at least 1"),
        ('[["two words"]]', "not usable as a name"),
    ],
)
def test_what_is_wrong_with_sets_is_told(sets: str, says: str) -> None:
    with pytest.raises(TopologyError, match="regions") as told:
        load_text(PLAIN + f"regions: {sets}\n")
    assert says in str(told.value)
