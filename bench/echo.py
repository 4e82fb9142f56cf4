"""The floor of a tool call: the same engine answers each message it reads with one of a call's size."""

from __future__ import annotations

import json
import os

message = json.dumps([1, "add", {"a": 1, "b": 2}]).encode()
os.write(1, message)
while data := os.read(0, 65536):
    json.loads(data)
    os.write(1, message)
