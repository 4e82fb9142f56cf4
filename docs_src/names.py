from corral import define_tool
from corral.tools import ToolRegistry


def nothing(input: object) -> None:
    """Takes anything, returns nothing."""


NAMES = ["get_user", "getUser", "web-search", "2fa", "naïve", "日本", "delete", "import", "get-user"]
registry = ToolRegistry(*(define_tool(name=name, execute=nothing) for name in NAMES))
for guest_name, tool in registry.snapshot().items():
    print(f"{tool.name:12} tools.{guest_name}")
