"""A callable operation: the schema of its input, its request, and the conversion of its response."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from corral.egress import SafeClient
from corral.errors import ToolError
from corral.sources.openapi.bodies import Body
from corral.sources.openapi.parameter_styles import Unwritable
from corral.sources.openapi.parameters import BODY, Line, Parameter, PathTemplate
from corral.sources.openapi.responses import Responses
from corral.sources.openapi.schemas import SchemaUse
from corral.sources.openapi.security import Identity, Security
from corral.types import ExecutionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Everything that a call of one operation needs."""

    label: str
    method: str
    base: httpx.URL
    path: PathTemplate
    parameters: Sequence[Parameter]
    body: Body | None
    responses: Responses
    security: Security
    schemes: Sequence[str]
    follow: bool
    """True if redirects are followed."""

    @property
    def input(self) -> SchemaUse:
        """The schema of a tool's input: an object of the parameters, and of the body under that name."""
        members = {each.key: (each.schema, each.required) for each in self.parameters}
        if self.body is not None:
            members[BODY] = (self.body.schema, self.body.required)
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {key: use.schema for key, (use, _) in members.items()},
            "additionalProperties": False,
        }
        if wanted := [key for key, (_, required) in members.items() if required]:
            schema["required"] = wanted
        return SchemaUse(schema, set[str]().union(*(use.names for use, _ in members.values())))

    async def call(self, client: SafeClient, input: dict[str, Any] | None, context: ExecutionContext) -> object:
        """Sends the request and reads the response.

        Raises:
            ToolError: the request cannot be sent, was not answered, or failed.
            EgressBlocked: the response is too large or too late, or leads where the client must not go.
        """
        values = input or {}
        line = self._line(values)
        identity = await self.security.identify(self.schemes, context)
        identity.write(line)
        request = self._request(client, line, values)
        try:
            response = await client.send(request, follow_redirects=self.follow)
            return self.responses.read(response, self.label)
        except httpx.HTTPError as error:
            said = f"{self.label} was not answered: {type(error).__name__} {error}".rstrip()
            unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            said = said if unsent else f"{said}; it may have taken effect"
            raise ToolError(identity.hide(said), outcome_known=unsent) from None
        except ToolError as error:
            raise _without(identity, error) from None

    def _line(self, values: dict[str, Any]) -> Line:
        line = Line()
        try:
            line.path = self.path.fill(values)
        except Unwritable as problem:
            raise ToolError(f"{self.label}: {problem}") from None
        for each in self.parameters:
            value = values.get(each.key)
            if each.place == "path" or (value is None and not (each.required and each.key in values)):
                continue
            try:
                each.write(value, line)
            except Unwritable as problem:
                raise ToolError(f"{self.label}: {each.key}: {problem}") from None
        return line

    def _request(self, client: SafeClient, line: Line, values: dict[str, Any]) -> httpx.Request:
        headers = [("Accept", self.responses.accept), *line.headers]
        if line.cookies:
            headers.append(("Cookie", "; ".join(f"{name}={text}" for name, text in line.cookies)))
        options: dict[str, Any] = {}
        if self.body is not None and (BODY in values and (values[BODY] is not None or self.body.required)):
            try:
                content = self.body.write(values[BODY])
            except Unwritable as problem:
                raise ToolError(f"{self.label}: {problem}") from None
            media = content.media
            if content.parts is None:
                options["content"] = content.data
            else:
                media = f"{media}; boundary={secrets.token_hex(16)}"
                options["files"] = content.parts
            headers.append(("Content-Type", media))
        query = "&".join(f"{name}={text}" for name, text in line.query)
        target = self.base.raw_path.decode("ascii").rstrip("/") + line.path + (f"?{query}" if query else "")
        url = self.base.copy_with(raw_path=target.encode("ascii"))
        return client.build_request(self.method, url, headers=headers, **options)


def _without(identity: Identity, error: ToolError) -> ToolError:
    """The same error without secrets: servers may send back what they were sent."""
    return ToolError(identity.hide(str(error)), outcome_known=error.outcome_known)
