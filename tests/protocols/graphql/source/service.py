"""A GraphQL service on this machine: graphql-core behind a server, with parts of every kind."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from graphql import GraphQLError, GraphQLSchema, build_schema
from graphql import graphql as execute  # pyright: ignore[reportUnknownVariableType]
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.bridges.http.serving import Server

__all__ = ["Service", "serve"]

_SDL = """
scalar Stamp
interface Named { id: ID! name: String! }
enum Genre { NOVEL ESSAY }
type Author implements Named { id: ID! name: String! born: Int email: String books: [Book!]! }
type Book implements Named {
  id: ID! name: String! genre: Genre author: Author rating: Float stamp: Stamp
  isbn: String @deprecated(reason: "use id")
  secret: String reviews(first: Int): ReviewPage!
}
type Magazine { id: ID! name: Int issue: Int! }
type Review { text: String! stars: Int! }
type PageInfo { hasNextPage: Boolean! endCursor: String }
type ReviewPage { nodes: [Review!]! pageInfo: PageInfo! edges: [ReviewEdge!] }
type ReviewEdge { cursor: String node: Review }
type BookPage { nodes: [Book] pageInfo: PageInfo! edges: [BookEdge] totalCount: Int! }
type BookEdge { cursor: String node: Book }
union Found = Book | Author | Magazine
input Filter { genre: Genre = NOVEL not: Filter ids: [ID!] }
type Query {
  "A book by its id."
  book(id: ID!): Book
  "Books, page by page."
  books(filter: Filter, first: Int = 2, after: String): BookPage!
  search(text: String!): [Found!]!
  named(id: ID!): Named
  count: Int!
  broken: Book
  half: Book
  old: Int @deprecated(reason: "use count")
  me: String
  rename(select: String): Book
}
type Mutation {
  "Renames a book."
  rename(id: ID!, name: String!): Book
  fail: Int
}
"""
_BOOKS: dict[str, dict[str, Any]] = {
    "1": {"__typename": "Book", "id": "1", "name": "Emma", "genre": "NOVEL", "rating": 4.5, "stamp": {"at": 1}},
    "2": {"__typename": "Book", "id": "2", "name": "Walden", "genre": "ESSAY", "rating": None, "stamp": None},
}
_AUTHOR: dict[str, Any] = {"__typename": "Author", "id": "a", "name": "Jane", "born": 1775, "email": None, "books": []}


class Service:
    """The root value, and the requests that came."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any], str | None]] = []
        self.introspects = True

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        authorization = request.headers.get("authorization")
        self.requests.append((body["query"], body.get("variables") or {}, authorization))
        if "__schema" in body["query"] and not self.introspects:
            return JSONResponse({"errors": [{"message": "no"}]}, 503)
        if request.url.path == "/text":
            return Response("gateway", 502)
        root = Root(authorization)
        found = await execute(SCHEMA, body["query"], root, variable_values=body.get("variables"))
        return JSONResponse(found.formatted)


class Root:
    def __init__(self, authorization: str | None) -> None:
        self._authorization = authorization

    def book(self, _info: Any, id: str) -> dict[str, Any] | None:
        found = _BOOKS.get(id)
        page = {"nodes": [{"text": "good", "stars": 5}], "pageInfo": {"hasNextPage": False}}

        def reviews(_info: Any, first: int | None = None) -> object:
            return page

        return found and {**found, "author": _AUTHOR, "reviews": reviews}

    def books(self, _info: Any, first: int, filter: dict[str, Any] | None = None, after: str | None = None) -> Any:
        chosen = [each for each in _BOOKS.values() if filter is None or each["genre"] == filter.get("genre")]
        page = {"hasNextPage": len(chosen) > first, "endCursor": "c"}
        return {"nodes": chosen[:first], "pageInfo": page, "totalCount": len(chosen)}

    def search(self, _info: Any, text: str) -> list[Any]:
        return [_BOOKS["1"], _AUTHOR, {"__typename": "Magazine", "id": "m", "name": 7, "issue": 3}]

    def named(self, _info: Any, id: str) -> Any:
        return _AUTHOR if id == "a" else _BOOKS[id]

    def count(self, _info: Any) -> int:
        return len(_BOOKS)

    def broken(self, _info: Any) -> None:
        raise GraphQLError(f"no access with {self._authorization}", extensions={"code": "FORBIDDEN"})

    def half(self, _info: Any) -> Any:
        def refuse(_info: Any) -> None:
            raise GraphQLError("not for you")

        return {**_BOOKS["1"], "secret": refuse}

    def me(self, _info: Any) -> str | None:
        return self._authorization

    def rename(self, _info: Any, id: str = "1", name: str = "", select: str | None = None) -> Any:
        return {**_BOOKS[id], "name": name or str(select)}

    def fail(self, _info: Any) -> None:
        raise GraphQLError("failed")


SCHEMA: GraphQLSchema = build_schema(_SDL)


@contextmanager
def serve() -> Generator[tuple[Service, str]]:
    """Serves it for the block; its address."""
    service = Service()
    app = Starlette(routes=[Route("/{path:path}", service.answer, methods=["POST"])])
    with Server(app) as server:
        yield service, f"{server.url}/graphql"
