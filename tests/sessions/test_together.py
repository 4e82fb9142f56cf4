"""Files, packages and network of one session, used by programs in both languages."""

from __future__ import annotations

import json

import pytest

from corral import Corral, ExecutionContext
from corral.egress import Header, Network
from corral.packages import NpmPackages
from tests.egress.site import Site, site
from tests.foreign import PACKAGES

pytestmark = pytest.mark.anyio

SECRET = "Bearer s3cret-token-of-the-host"


async def test_one_language_packs_what_was_fetched_and_the_other_reads_it() -> None:
    async with site("127.0.0.2") as web:
        await _pack_and_read(web)


async def _pack_and_read(web: Site) -> None:
    ann = ExecutionContext(user_id="ann")
    network = Network(
        allow=[web.origin],
        credentials={"127.0.0.2": Header("Authorization", SECRET)},
        exempt_networks=["127.0.0.2/31"],
        verify=False,
    )
    async with (
        Corral(check=False) as corral,
        corral.session(context=ann, packages=NpmPackages(PACKAGES), network=network) as session,
    ):
        packed = await session.execute(f"""
            import JSZip from "jszip";
            import {{ writeFile }} from "fs/promises";
            const told = await (await fetch("{web.origin}/echo", {{ method: "POST", body: "report" }})).text();
            const zip = new JSZip();
            zip.file("told.json", told);
            await writeFile("report.zip", await zip.generateAsync({{ type: "nodebuffer" }}));
            return told;
        """)
        packed.raise_for_error()
        assert SECRET not in packed.value
        read = await session.execute(
            f"""
import json, urllib.request, zipfile
told = json.loads(zipfile.ZipFile("report.zip").read("told.json"))
again = json.load(urllib.request.urlopen("{web.origin}/echo", data=b"again"))
open("both.json", "w").write(json.dumps([told["size"], again["size"]]))
""",
            language="python",
        )
        read.raise_for_error()
        assert read.files is not None
        assert read.files.created == ("/workspace/both.json",)
        assert json.loads(await session.files.read_text("both.json") or "") == [6, 5]
        alone = await corral.execute(f'await fetch("{web.origin}/echo")', context=ann)
        assert alone.error is not None
        assert "fetch is off" in alone.error.message
    assert [headers["authorization"] for _, headers in web.requests] == [SECRET, SECRET]
