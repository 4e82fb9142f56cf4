"""Two organizations, acme and globex, use one service at the same time; this shows what each of them gets.

Usage: `python examples/tenants/main.py` plays a scenario; with `serve` it prints an address for browsers, and serves
until Ctrl-C. Either starts PostgreSQL, Valkey, a mail server and the service, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import deno
import httpx
from pydantic import TypeAdapter
from redis import Redis

from app import create_app
from database import create_invoices
from mail import MailServer
from servers import exchange_rates, postgres, serving, smtp, valkey
from service import Settings

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Started:
    url: str
    settings: Settings
    home: Path
    inbox: list[EmailMessage]


@contextmanager
def started() -> Generator[Started]:
    """All servers. Mail goes to the server of SMTP_URL, or stays in `inbox`."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corral-tenants-")))
        home.chmod(0o711)  # PostgreSQL may have to run as another user
        database = stack.enter_context(postgres(home / "postgres"))
        asyncio.run(create_invoices(f"postgresql://owner@/postgres?host={database}"))
        inbox: list[EmailMessage] = []
        settings = Settings(
            postgres=f"postgresql://invoicing@/postgres?host={database}",
            valkey=stack.enter_context(valkey(home / "valkey")),
            rates=stack.enter_context(serving(exchange_rates)),
            audit=home / "audit.sqlite",
            mail=MailServer(os.environ.get("SMTP_URL") or stack.enter_context(smtp(inbox))),
        )
        yield Started(stack.enter_context(serving(create_app(settings))), settings, home, inbox)


def main() -> None:
    with started() as service, httpx.Client(base_url=service.url, timeout=30) as client:
        play(client, service.settings, service.home)


def serve() -> None:
    """Serves browsers and works off jobs, and prints mail that arrives, until Ctrl-C."""
    with started() as service, worker(service.settings):
        print(f"{service.url}/login")
        print("log in with key-of-ann or key-of-bob of acme, or key-of-gus of globex; Ctrl-C ends all", flush=True)
        while True:
            time.sleep(0.2)
            while service.inbox:
                mail = service.inbox.pop(0)
                print(f"mail to {mail['to']}: {mail['subject']}: {mail.get_content().strip()}", flush=True)


@contextmanager
def worker(settings: Settings) -> Generator[None]:
    """A process that works off jobs. It gets its settings by a pipe, where no other process sees them."""
    # A group of its own: the terminal's Ctrl-C must not end it before this process does
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("jobs.py")], stdin=subprocess.PIPE, process_group=0
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(TypeAdapter(Settings).dump_json(settings))
            process.stdin.close()
            yield
        finally:
            process.terminate()


def play(client: httpx.Client, settings: Settings, home: Path) -> None:
    def run(user: str, program: str) -> Any:
        """The `ExecutionResult` of a program, as JSON."""
        response = client.post("/programs", headers=key(user), content=(PROGRAMS / program).read_bytes())
        return response.raise_for_status().json()

    title("The same program, for ann of acme, for gus of globex, and for ann again")
    for user in ("ann", "gus", "ann"):
        value = run(user, "overview.ts")["value"]
        print(f"{user}: {value['unpaid']} unpaid of {', '.join(value['numbers'])}")
    cache: Any = Redis.from_url(settings.valkey)  # pyright: ignore[reportUnknownMemberType]
    with cache:
        print("cached:", *sorted(each.decode() for each in cache.keys("invoices:*")))

    title("ann tries to reach an invoice of globex")
    show(run("ann", "cross.ts")["value"])

    title("ann tries to reach what is inside")
    show(run("ann", "reach_inside.ts")["value"])

    title("Both convert to euros at the same time; each organization may ask for 3 rates, then for one in 2 s")
    with ThreadPoolExecutor() as threads:
        for user, result in zip(("ann", "gus"), threads.map(run, ("ann", "gus"), ("convert.ts",) * 2), strict=True):
            print(f"{user}: {result['value']['euros']} EUR unpaid, calls that waited: {result['value']['waited']}")

    title("ann pays; over 1,000.00 a rule is asked, which approves up to 5,000.00")
    show(run("ann", "pay_all.ts")["value"])
    for user in ("ann", "gus"):
        print(f"{user}: {run(user, 'overview.ts')['value']['unpaid']} unpaid")

    title("bob of acme, who may read and not pay, sends the same program")
    result = run("bob", "pay_all.ts")
    print(f"{result['status']} with {len(result['tool_calls'])} calls made: {result['error']['message']}")

    title("A program that runs elsewhere, with a token of ann's; and what else is no such token")
    token = client.post("/token", headers=key("ann")).raise_for_status().json()["token"]
    print(run_elsewhere(client.base_url.netloc.decode(), token, home), end="")
    for what, credentials in {"the token, made to say globex": forged(token), "ann's API key": "key-of-ann"}.items():
        headers = {"authorization": f"Bearer {credentials}"}
        response = client.post("/bridge/tools/list_invoices", headers=headers, json={})
        print(f"{what}: {response.status_code} {response.json()['error']['message']}")

    title("What is on record of each organization")
    for user in ("ann", "gus"):
        events = client.get("/audit", headers=key(user)).raise_for_status().json()
        counts = Counter(
            (event["organization_id"], event["user_id"], event["tool"] or "a program", event["code"] or "succeeded")
            for event in events
        )
        for columns, count in sorted(counts.items()):
            print("{:8}{:5}{:15}{:20}".format(*columns), count)


def key(user: str) -> dict[str, str]:
    return {"x-api-key": f"key-of-{user}"}


def run_elsewhere(address: str, token: str, home: Path) -> str:
    """What programs/elsewhere.ts prints in a Deno of its own."""
    rights = [f"--allow-net={address}", f"--allow-import={address}", "--allow-env=CORRAL_URL,CORRAL_TOKEN"]
    command = [deno.find_deno_bin(), "run", "--quiet", "--no-prompt", *rights, PROGRAMS / "elsewhere.ts"]
    environment = {"CORRAL_URL": f"http://{address}/bridge", "CORRAL_TOKEN": token, "DENO_DIR": str(home / "deno")}
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def forged(token: str) -> str:
    """The token, made to say that it is of globex; who has no key cannot sign that."""
    header, claims, signature = token.split(".")
    said = json.loads(base64.urlsafe_b64decode(claims + "=="))
    changed = base64.urlsafe_b64encode(json.dumps(said | {"org": "globex"}).encode()).decode().rstrip("=")
    return f"{header}.{changed}.{signature}"


def title(text: str) -> None:
    print(f"\n━━━ {text}\n", flush=True)


def show(outcomes: Mapping[str, str]) -> None:
    for name, outcome in outcomes.items():
        print(f"{name}\n    {outcome}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        serve() if sys.argv[1:] == ["serve"] else main()
    except KeyboardInterrupt:
        sys.exit(130)
