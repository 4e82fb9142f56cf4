"""Only globally routable unicast is public, however it is spelled."""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv6Address

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from corral.egress.addresses import is_internal_name, is_public, read_host

V4 = st.ip_addresses(v=4)
V6 = st.ip_addresses(v=6)

NOT_PUBLIC = """
    0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.1.2.3 168.63.129.16
    169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1
    198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
    :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:a9fe:a9fe ::ffff:8.8.8.8 ::ffff:0:127.0.0.1
    64:ff9b::7f00:1 64:ff9b::8.8.8.8 64:ff9b:1::7f00:1 100::1 2001::80ff:fffe 2001:0:1234::1 2001:2::1 2001:10::1
    2001:20::1 2001:db8::1 2002:7f00:1:: 2002:808:808:: 3ffe::1 3fff::1 5f00::1 fc00::1 fd00::1 fd00:ec2::254
    fd20:ce::254 fe80::1 fec0::1 ff02::1 ff0e::1 4000::1 2a00:1450::5efe:10.0.0.1 2a00:1450::200:5efe:a00:1
""".split()
PUBLIC = "1.1.1.1 8.8.8.8 93.184.216.34 168.63.129.15 172.32.0.1 223.255.255.255 2606:4700::1111 2a00:1450:4001::200e".split()


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_of_the_inside_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def test_an_address_with_a_zone_is_not_public() -> None:
    assert not is_public(IPv6Address("2606:4700::1111%lo"))


def looks_inward(address: IPv4Address | IPv6Address) -> bool:
    return not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified


@given(V4 | V6)
def test_what_python_calls_not_global_is_never_public(address: IPv4Address | IPv6Address) -> None:
    assert not (looks_inward(address) and is_public(address))


@given(V4)
def test_what_carries_an_inward_ipv4_address_is_never_public(inner: IPv4Address) -> None:
    assume(not is_public(inner))
    number = int(inner)
    carriers = {
        "mapped": (0xFFFF << 32) | number,
        "compatible": number,
        "SIIT": (0xFFFF << 48) | number,
        "NAT64": int(IPv6Address("64:ff9b::")) | number,
        "local NAT64": int(IPv6Address("64:ff9b:1::")) | number,
        "6to4": (0x2002 << 112) | (number << 80),
        "Teredo server": (0x20010000 << 96) | (number << 64),
        "Teredo client": (0x20010000 << 96) | (number ^ 0xFFFF_FFFF),
        "ISATAP": int(IPv6Address("2a00:1450:4001:800:0:5efe::")) | number,
    }
    assert [name for name, carrier in carriers.items() if is_public(IPv6Address(carrier))] == []


def spellings(address: IPv4Address) -> list[str]:
    a, b, c, d = address.packed
    number = int(address)
    return [
        str(address),
        f"{address}.",
        str(number),
        hex(number),
        hex(number).upper(),
        f"0{number:o}",
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a}.{(b << 16) | (c << 8) | d}",
        f"{a}.{b}.{(c << 8) | d}",
        f"{a:#x}.{b}.0{c:o}.{d}.",
    ]


@given(V4)
def test_all_spellings_of_an_ipv4_address_are_the_same_address(address: IPv4Address) -> None:
    assert {read_host(spelling) for spelling in spellings(address)} == {address}


@given(V4)
def test_dots_of_other_scripts_make_the_same_address(address: IPv4Address) -> None:
    for dot in "。．｡":
        host = httpx.URL(f"http://{str(address).replace('.', dot)}/").raw_host
        assert read_host(host.decode()) == address


@given(V6)
def test_all_spellings_of_an_ipv6_address_are_the_same_address(address: IPv6Address) -> None:
    for spelling in (address.compressed, address.exploded, address.exploded.upper()):
        assert read_host(httpx.URL(f"http://[{spelling}]/").raw_host.decode()) == address


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        "a..b",
        "-a b.com",
        "a.com/b",
        "127.0.0.1 x.1",
        "a\\b.com",
        "a\n.com",
        "é.com",
        "a.com..",
        "a%00.com",
        "fe80::1%lo",
    ],
)
def test_a_host_with_what_no_name_has_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="the host"):
        read_host(host)


@pytest.mark.parametrize("host", ["a" * 64 + ".com", "a." * 127 + "abc"])
def test_a_name_longer_than_names_are_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="neither a name"):
        read_host(host)


@pytest.mark.parametrize(
    "host", ["1.2.3.4.5", "256.256.256.256", "4294967296", "0x1g.0x", "08", "a.1", "127.0.0.1.x.1"]
)
def test_a_host_that_ends_in_a_number_is_an_address_or_nothing(host: str) -> None:
    with pytest.raises(ValueError, match="looks like an IP address"):
        read_host(host)


@pytest.mark.parametrize(
    "host",
    "localhost LOCALHOST. a.localhost printer.local metadata metadata.google.internal a.intranet router.home.arpa "
    "kubernetes.default.svc com".split(),
)
def test_a_name_of_the_inside_is_known(host: str) -> None:
    name = read_host(host)
    assert isinstance(name, str)
    assert is_internal_name(name)


@pytest.mark.parametrize("host", ["example.com", "Example.COM.", "local.example.com", "mylocal.com", "a_b.example.com"])
def test_a_public_name_is_not_taken_for_one(host: str) -> None:
    assert read_host(host) == host.lower().removesuffix(".")
    assert not is_internal_name(host.lower().removesuffix("."))
