"""The configuration behind an operator: no bit of its links changes unnoticed between two fetches."""

from types import SimpleNamespace

import numpy as np
import pytest

from stages.base.errors import DisagreementError
from stages.lqcd.estimators.trace import CurrentLinks
from stages.lqcd.gauge import origin
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.gauge.origin import Origin
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

pytestmark = pytest.mark.usefixtures("reference_kernels")

LATTICE = Lattice((4, 2, 6, 4))


def flip(array, byte):
    array.reshape(-1).view(np.uint8)[byte] ^= 4


@pytest.fixture
def links(random_su3):
    return random_su3(67, 4, 2, LATTICE.half_volume)


class Bus:
    """A device whose memory is the host's, reached by copies that can lose a bit."""

    def __init__(self):
        self.sound = True

    def send(self, array, out):
        out[...] = array
        if not self.sound:
            flip(out, 1234)


@pytest.fixture
def bus(monkeypatch):
    """The way to the device that backend 'cuda' names."""
    bus = Bus()
    monkeypatch.setattr(origin, "array_module_of", lambda backend: SimpleNamespace())
    monkeypatch.setattr(origin, "empty_field", lambda shape, dtype, xp: np.empty(shape, dtype))
    monkeypatch.setattr(origin, "to_device", bus.send)
    return bus


@pytest.mark.usefixtures("bus")
@pytest.mark.parametrize("backend", [None, "cuda"])
@pytest.mark.parametrize("parity", [None, EVEN, ODD])
def test_links_that_changed_in_the_hosts_memory_are_not_fetched(links, backend, parity):
    made_of = Origin(links, backend)
    first = made_of.fetched()
    np.testing.assert_array_equal(first, links)
    np.testing.assert_array_equal(made_of.fetched(ODD), links[:, ODD])
    flip(links[2, EVEN if parity is None else parity], 777)
    with pytest.raises(DisagreementError, match="links changed in memory, or on their way"):
        made_of.fetched(parity)


def test_links_that_change_on_their_way_are_not_taken(links, bus):
    bus.sound = False
    with pytest.raises(DisagreementError, match="on their way to the GPU"):
        Origin(links, "cuda").fetched()


@pytest.mark.parametrize("choice", ["thin", "smeared"])
def test_a_current_is_not_made_of_links_that_changed(links, choice):
    fermion = hisq_links(links, LATTICE, boundary="antiperiodic", naik_epsilon=0.0)
    current = CurrentLinks(fermion, choice)
    before = current.of(EVEN).copy()
    flip(links[1, ODD], 100)
    np.testing.assert_array_equal(current.of(EVEN), before)
    with pytest.raises(DisagreementError, match="links changed in memory"):
        current.of(ODD)


@pytest.mark.parametrize("choice", ["thin", "smeared", "fat"])
@pytest.mark.parametrize("after", ["the other parity is wanted", "the block ends"])
def test_links_of_a_current_that_change_while_they_are_kept_are_noticed(links, choice, after):
    fermion = hisq_links(links, LATTICE, boundary="antiperiodic", naik_epsilon=0.0)
    current = CurrentLinks(fermion, choice)
    with current.unchanged():
        current.of(EVEN)
    with pytest.raises(DisagreementError, match="links of the current changed"), current.unchanged():
        flip(current.of(EVEN), 50)
        if after == "the other parity is wanted":
            current.of(ODD)
