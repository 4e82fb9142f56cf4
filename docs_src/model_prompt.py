from corral import Corral, tool

CELSIUS = {"Bergen": 4.5, "Oslo": -2.5}


@tool
def list_cities() -> list[str]:
    """The cities with a weather station."""
    return sorted(CELSIUS)


@tool
async def get_temperature(city: str) -> float:
    """The temperature in a city, in °C."""
    return CELSIUS[city]


corral = Corral(tools=[list_cities, get_temperature])
print(corral.model.prompt("You are a meteorologist."))
print("---")
print(corral.model.tools(in_prompt=True)[0].description)
