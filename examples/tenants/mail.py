"""Mail by the service's own account. Programs name a reader, a subject and a text, and never see the account."""

from __future__ import annotations

from dataclasses import dataclass, field
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

import aiosmtplib
from corral import ToolError

__all__ = ["MailServer", "is_inside"]

_DOMAINS = {"acme": "acme.example", "globex": "globex.example"}
_TIMEOUT_SECONDS = 10


def is_inside(address: str, organization: str | None) -> bool:
    """True if the address is one of the organization's own."""
    domain = address.rpartition("@")[2].lower()
    return organization is not None and domain == _DOMAINS.get(organization)


@dataclass(frozen=True)
class MailServer:
    """An SMTP server, `smtp://user:password@host:port`, or `smtps://` for TLS from the first byte."""

    url: str = field(repr=False)
    sender: str = "service@tenants.example"

    async def send(self, to: str, subject: str, text: str) -> None:
        """Sends one message.

        Raises:
            ToolError: the server does not take it, or a header would have more than one line.
        """
        server = urlsplit(self.url)
        message = EmailMessage()
        try:
            message["From"], message["To"], message["Subject"] = self.sender, to, subject
        except ValueError:
            raise ToolError("an address and a subject have one line") from None
        message.set_content(text)
        try:
            await aiosmtplib.send(
                message,
                sender=self.sender,
                recipients=[to],
                hostname=server.hostname,
                port=server.port,
                username=unquote(server.username) if server.username else None,
                password=unquote(server.password) if server.password else None,
                use_tls=server.scheme == "smtps",
                timeout=_TIMEOUT_SECONDS,
            )
        except aiosmtplib.SMTPException as error:
            raise ToolError(f"the mail server did not take the message ({type(error).__name__})") from error
