"""The interface that has an address of this host."""

from __future__ import annotations

import socket

import pytest

from skyward._sky import network as _network
from skyward._sky.cluster import InstanceInfo
from skyward._sky.network import interface_of


def test_loopback_has_all_its_addresses_and_no_other() -> None:
    assert interface_of("127.0.7.1") == "lo"
    assert interface_of("192.0.2.1") is None
    assert interface_of("2001:db8::1") is None


def test_an_address_of_ipv6_is_found_in_the_systems_table(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    table = f"{tmp_path}/if_inet6"
    with open(table, "w") as file:
        file.write("00000000000000000000000000000001 01 80 10 80       lo\n")
        file.write("20010db8000000000000000000000005 02 40 00 80     eth1\n")
    monkeypatch.setattr(_network, "_INET6", table)
    assert interface_of("2001:db8::5") == "eth1"
    assert interface_of("::1") == "lo"


def test_the_zone_of_a_link_local_address_names_its_interface(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    table = f"{tmp_path}/if_inet6"
    with open(table, "w") as file:
        file.write("fe800000000000000000000000000001 02 40 20 80     eth0\n")
        file.write("fe800000000000000000000000000001 0b 40 20 80     eth1\n")
    monkeypatch.setattr(_network, "_INET6", table)
    found = [interface_of(f"fe80::1%{zone}") for zone in ("eth0", "eth1", "2", "11", "eth2")]
    assert found == ["eth0", "eth1", "eth0", "eth1", None]


def test_the_interface_of_this_hosts_own_address_is_found_and_workers_see_it() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; selects the address that would be used
        except OSError:
            pytest.skip("this host has no network")
        address = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this host has only loopback")
    name = interface_of(address)
    assert name in [name for _, name in socket.if_nameindex()]
    assert InstanceInfo.parse({"addr": address}).network.interface == name
