"""FastAPI as the judge: it says itself what it takes, and gives back what it made of what arrived."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing
from socket import create_server
from typing import Annotated, Any

import pytest
import uvicorn
from fastapi import Body, Cookie, Depends, FastAPI, File, Form, Header, HTTPException, Path, Query, UploadFile
from fastapi.responses import PlainTextResponse, Response
from fastapi.security import APIKeyHeader, APIKeyQuery, HTTPBasic, HTTPBasicCredentials, HTTPBearer
from pydantic import BaseModel, Field

from corral.errors import InvalidArguments, ToolError
from corral.sources.openapi import ApiKey, Basic, Bearer
from tests.sources.openapi.service import calling

pytestmark = pytest.mark.anyio

app = FastAPI()


class Item(BaseModel):
    name: str = Field(max_length=10)
    price: float | None = None
    tags: set[str] = set()
    parts: list[Item] = []


@app.get("/query/{where}/{rest:path}")
def query(
    where: str,
    rest: Annotated[str, Path()],
    words: Annotated[list[str], Query()],
    flag: bool = False,
    number: float | None = None,
    agent: Annotated[str | None, Header(alias="X-Agent")] = None,
    numbers: Annotated[list[int] | None, Header(alias="X-Numbers", convert_underscores=False)] = None,
    session: Annotated[str | None, Cookie()] = None,
) -> Any:
    return [where, rest, words, flag, number, agent, numbers, session]


@app.put("/items/{item_id}")
def put_item(item_id: int, item: Item, dry: bool = False) -> Item:
    assert isinstance(item_id, int)
    assert isinstance(dry, bool)
    return item


@app.post("/two")
def two(item: Item, count: Annotated[int, Body()]) -> list[Any]:
    return [item, count]


@app.post("/form")
def form(
    name: Annotated[str, Form()], tags: Annotated[list[str], Form()], age: Annotated[int | None, Form()] = None
) -> Any:
    return [name, tags, age]


@app.post("/upload")
async def upload(file: UploadFile, more: Annotated[list[UploadFile], File()], note: Annotated[str, Form()] = "") -> Any:
    return [[each.filename, each.content_type, (await each.read()).hex()] for each in (file, *more)] + [note]


@app.get("/text", response_class=PlainTextResponse)
def text() -> str:
    return "é"


@app.get("/bytes", responses={200: {"content": {"image/png": {}}}}, response_class=Response)
def image() -> Response:
    return Response(b"\x89PNG\x00", media_type="image/png")


@app.delete("/items/{item_id}", status_code=204)
def delete_item(item_id: int) -> None:
    if item_id == 0:
        raise HTTPException(409, "in use")


@app.get("/basic")
def basic(credentials: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())]) -> list[str]:
    return [credentials.username, credentials.password]


@app.get("/bearer")
def bearer(credentials: Annotated[Any, Depends(HTTPBearer())]) -> str:
    return credentials.credentials


@app.get("/query_key")
def key_in_query(key: Annotated[str, Depends(APIKeyQuery(name="key"))]) -> str:
    return key


@app.get("/header_key")
def key_in_header(key: Annotated[str, Depends(APIKeyHeader(name="X-Key"))]) -> str:
    return key


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with closing(create_server(("127.0.0.1", 0))) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


CREDENTIALS = {
    "HTTPBasic": Basic("me", "pass:word"),
    "HTTPBearer": Bearer("to.ken"),
    "APIKeyQuery": ApiKey("a&b=c d"),
    "APIKeyHeader": ApiKey("k"),
}
ITEM: dict[str, Any] = {
    "name": "chair",
    "price": 1.5,
    "tags": ["a"],
    "parts": [{"name": "leg", "price": None, "tags": [], "parts": []}],
}


async def test_what_is_sent_is_what_fastapi_reads(url: str) -> None:
    async with calling(url, app.openapi(), credentials=CREDENTIALS) as tools:

        async def call(function: str, **input: Any) -> Any:
            [name] = [each for each in tools.tools if each.startswith(f"{function}_")]
            return await tools(name, **input)

        odd = "a b&c=d+e%2F/?#é,;"
        assert await call("query", where="x", rest="a/b ü", words=[odd, ""], flag=True, number=1e-7, session="s;t", **{"X-Agent": "a, b"}) == [
            "x", "a/b ü", [odd, ""], True, 1e-7, "a, b", None, "s%3Bt",
        ]  # fmt: skip
        assert await call("put_item", item_id=7, dry=True, body=ITEM) == ITEM
        assert await call("two", body={"item": ITEM, "count": 3}) == [ITEM, 3]
        assert await call("form", body={"name": odd, "tags": ["x", "y&z"], "age": 3}) == [odd, ["x", "y&z"], 3]
        files = {
            "file": b"\x00\xff",
            "more": [{"data": "é", "filename": "q;1.txt", "content_type": "text/csv"}, b""],
            "note": odd,
        }
        assert await call("upload", body=files) == [
            ["file", "application/octet-stream", "00ff"],
            ["q;1.txt", "text/csv", "c3a9"],
            ["more", "application/octet-stream", ""],
            odd,
        ]
        assert await call("text") == "é"
        assert await call("image") == b"\x89PNG\x00"
        assert await call("delete_item", item_id=1) is None
        assert await call("basic") == ["me", "pass:word"]
        assert await call("bearer") == "to.ken"
        assert await call("key_in_query") == "a&b=c d"
        assert await call("key_in_header") == "k"
        with pytest.raises(ToolError, match=r'DELETE /items/{item_id} answered 409 Conflict: {"detail":"in use"}'):
            await call("delete_item", item_id=0)
        with pytest.raises(InvalidArguments, match=r"body.name: expected at most 10 characters"):
            await call("put_item", item_id=1, body={"name": "x" * 11})
