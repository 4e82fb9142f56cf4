from pydantic import BaseModel

from corral import Corral, ToolError, tool

TEMPERATURES = {"Bergen": 4.5, "Oslo": -2.5, "Tromsø": -6.5}


class Reading(BaseModel):
    city: str
    celsius: float


@tool
def list_cities() -> list[str]:
    """The cities with a weather station."""
    return sorted(TEMPERATURES)


@tool
async def read(city: str) -> Reading:
    """The newest reading of a station."""
    if city not in TEMPERATURES:
        raise ToolError(f"no station in {city}")
    return Reading(city=city, celsius=TEMPERATURES[city])


TOOLS = [list_cities, read]

if __name__ == "__main__":
    print(Corral(tools=TOOLS).model.declarations(), end="")
