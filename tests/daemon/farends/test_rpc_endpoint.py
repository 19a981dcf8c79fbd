"""How far ends are written."""

from __future__ import annotations

import re

import pytest

from pilotfish.daemon.farends.rpc_endpoint import MOST, RpcEndpoint, rpc_endpoints


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("10.0.0.2", "10.0.0.2:50052"),
        ("10.0.0.2:5000", "10.0.0.2:5000"),
        (" Big-Box.local ", "big-box.local:50052"),
        ("localhost:65535", "localhost:65535"),
    ],
)
def test_a_far_end_is_a_name_or_an_ipv4_address_and_a_port(text, meant):
    assert str(RpcEndpoint.parse(text)) == meant
    assert RpcEndpoint.parse(meant) == RpcEndpoint.parse(text)


@pytest.mark.parametrize("text", ["::1", "[::1]:50052", "fe80::1:50052", "http://10.0.0.2:50052"])
def test_ipv6_and_urls_are_refused_with_the_reason(text):
    with pytest.raises(ValueError, match="cuts at the first colon") as refused:
        RpcEndpoint.parse(text)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["", ":50052", "10.0.0", "10.0.0.256", "a b", "a,b", "-a", "a:", "a:0", "a:65536", "a:x", "a:+1", "a:000001"],
)
def test_what_is_no_far_end_is_named(text):
    with pytest.raises(ValueError, match=r"names no machine|has no port") as refused:
        RpcEndpoint.parse(text)
    assert f'"{text}"' in str(refused.value)


def test_several_keep_their_order_and_none_is_named_twice():
    assert [str(one) for one in rpc_endpoints(["b", "a:1", "b:1"])] == ["b:50052", "a:1", "b:1"]
    names = [f"far{n}" for n in range(MOST + 1)]
    assert len(rpc_endpoints(names[:-1])) == MOST
    with pytest.raises(ValueError, match="at most 16"):
        rpc_endpoints(names)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a:1", "a:1"), ("b", "B:50052"), ("localhost:7", "127.0.0.1:7"), ("127.0.0.1", "localhost"), ("b.c", "b.c.")],
)
def test_a_far_end_that_is_named_twice_is_said_with_both_its_names(one, other):
    with pytest.raises(ValueError, match=f'"{re.escape(other)}" is the same far end as "{re.escape(one)}"'):
        rpc_endpoints(["x", one, other])


@pytest.mark.parametrize(
    ("text", "loopback"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("localhost", True), ("10.0.0.2", False), ("a", False)],
)
def test_whether_it_is_this_machine_can_be_seen(text, loopback):
    assert RpcEndpoint.parse(text).is_loopback == loopback
