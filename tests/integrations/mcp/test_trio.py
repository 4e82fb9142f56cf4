"""The same on the other event loop."""

from __future__ import annotations

import pytest
from mcp import Client

from corral.integrations.mcp import mcp_server
from tests.integrations.mcp.serving import MODES, Elicitation, make_corral, run
from tests.integrations.mcp.test_approvals import BOTH, YES

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_programs_ask_their_client_on_trio() -> None:
    asked = Elicitation(lambda _: YES)
    async with make_corral() as corral:
        for mode in MODES:
            async with Client(mcp_server(corral), mode=mode, elicitation_callback=asked) as client:
                assert (await run(client, BOTH)).structured_content["value"] == ["paid 1", "paid 2"]
    assert len(asked.asked) == 4
