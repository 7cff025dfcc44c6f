"""How processes find each other, up to where JAX takes over; all in threads of this process."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from process_runs import free_port, slurm

from patchgym.trainer.multihost import HostLost, LeaderLost, Processes, following, joining
from patchgym.trainer.multihost.joining import Place, gather, place_of, reach


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "JOIN_LIMIT", 1.0)


@pytest.fixture(autouse=True)
def losses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have ended a process other than the first."""
    found: list[str] = []
    monkeypatch.setattr(following, "alone", found.append)
    return found


def places(count: int) -> list[Place]:
    port = free_port()
    return [Place(count=count, index=i, host="127.0.0.1", port=port) for i in range(count)]


def test_all_meet_whoever_comes_first_and_strangers_do_not_count() -> None:
    first, second, third = places(3)
    reached: dict[int, Any] = {}

    def come(place: Place) -> None:
        reached[place.index] = reach(place)

    threads = [threading.Thread(target=come, args=(place,)) for place in (third, second)]
    threads[0].start()

    def stranger() -> None:
        while True:
            try:
                with socket.create_connection((first.host, first.port)) as connection:
                    connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    connection.recv(1)
                    return
            except ConnectionRefusedError:
                continue

    threads.append(threading.Thread(target=stranger))
    threads[2].start()
    threads[1].start()
    hosts, address = gather(first)
    for thread in threads:
        thread.join(20.0)
    assert [host.index for host in hosts] == [1, 2]
    assert {where for _, where in reached.values()} == {address}
    assert address.startswith("127.0.0.1:")
    for host in hosts:
        host.line.send("end", clean=True)
        assert reached[host.index][0].receive(10.0).kind == "end"
        host.line.close()
        reached[host.index][0].close()


@pytest.mark.usefixtures("short")
def test_who_did_not_come_is_named() -> None:
    with pytest.raises(HostLost, match=r"process 1, 2 of the learner did not come within 1 s"):
        gather(places(3)[0])


@pytest.mark.usefixtures("short")
def test_a_first_process_that_is_not_there_is_named() -> None:
    with pytest.raises(LeaderLost, match=r"does not answer at 127.0.0.1:\d+ within 1 s"):
        reach(places(2)[1])


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"count": 4}, "it is of 4 processes, process 0 of 2"),
        ({"index": 5}, "there is no process 5"),
        ({"version": "0.0.1"}, "it is patchgym 0.0.1"),
    ],
)
def test_one_that_does_not_belong_is_told_why(
    other: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch, losses: list[str]
) -> None:
    first, second = places(2)
    missed: list[HostLost] = []

    def wait() -> None:
        with pytest.raises(HostLost) as caught:
            gather(first)
        missed.append(caught.value)

    unfit = joining._unfit
    if "version" in other:  # both are this process: the other's version is changed on its way
        monkeypatch.setattr(joining, "_unfit", lambda h, said, *r: unfit(h, {**said, **other}, *r))
    waiting = threading.Thread(target=wait)
    waiting.start()
    place: dict[str, Any] = {"count": 2, "index": 1, "host": first.host, "port": second.port}
    place |= {name: value for name, value in other.items() if name != "version"}
    with pytest.raises(LeaderLost, match=words):
        reach(Place(**place))
    waiting.join(20.0)
    assert "process 1 of the learner did not come" in str(missed[0])
    assert losses == []


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        place = Place(count=2, index=0, host="127.0.0.1", port=port)
        with pytest.raises(HostLost, match=f"can't listen at 127.0.0.1:{port}"):
            gather(place)


def test_slurm_is_found_and_nothing_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LeaderLost, match="finds neither SLURM"):
        place_of(Processes())
    for name, value in slurm(1, 4).items():
        monkeypatch.setenv(name, value)
    found = place_of(Processes())
    assert (found.count, found.index, found.host) == (4, 1, "localhost")
    given = place_of(Processes(count=2, index=1, coordinator="[fd00::1]:70"))
    assert given == Place(count=2, index=1, host="fd00::1", port=70)
