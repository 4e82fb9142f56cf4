import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from corral import Corral
from corral.sources.openapi import Bearer, OpenApi

DOCUMENT = """
openapi: 3.0.3
info: {title: Weather, version: "1"}
servers: [{url: https://weather.example.com/v1}]
security: [{token: []}]
paths:
  /stations/{id}:
    get:
      operationId: get_station
      summary: A weather station.
      parameters:
        - {name: id, in: path, required: true, schema: {type: string}}
      responses:
        200: {description: ok, content: {application/json: {schema: {$ref: '#/components/schemas/Station'}}}}
    delete:
      operationId: delete_station
      security: [{admin: []}]
      responses: {204: {description: gone}}
components:
  schemas:
    Station:
      type: object
      required: [city, degrees]
      properties: {city: {type: string}, degrees: {type: number, nullable: true}}
  securitySchemes:
    token: {type: http, scheme: bearer}
    admin: {type: http, scheme: basic}
"""

PROGRAM = """
const station = await tools.weather.get_station({ id: "oslo" });
try {
  await tools.weather.get_station({ id: "rome" });
} catch (error) {
  return [station, error.message];
}
"""


class Weather(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.path == "/v1/stations/oslo" and self.headers["authorization"] == "Bearer secret"
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(b'{"city": "Oslo", "degrees": -2.5}' if known else b'{"error": "no such station"}')

    def log_message(self, format: str, *args: object) -> None: ...


async def main(port: int) -> None:
    weather = OpenApi(
        "weather",
        DOCUMENT,
        base_url=f"http://127.0.0.1:{port}/v1",
        credentials={"token": Bearer("secret")},
    )
    print(weather.skipped)
    async with Corral(tools=[weather]) as corral:
        print(corral.model.declarations())
        result = await corral.execute(PROGRAM)
        print(*result.value, sep="\n")


with ThreadingHTTPServer(("127.0.0.1", 0), Weather) as server:
    threading.Thread(target=server.serve_forever).start()
    asyncio.run(main(server.server_port))
    server.shutdown()
